{{- define "dtgol.name" -}}
{{- if contains "dtgol" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-dtgol" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "dtgol.selector" -}}
app.kubernetes.io/name: dtgol
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dtgol.labels" -}}
{{ include "dtgol.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "dtgol.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "dtgol.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "dtgol.name" .) }}
{{- end }}

{{- /* A probe of a path. With a token the request must carry it, which httpGet cannot take from a Secret. */ -}}
{{- define "dtgol.probe" -}}
{{- $web := .root.Values.web -}}
{{- if and $web.tokenKey (ne .path "/livez") -}}
exec:
  command: [python, -m, pipeline.web.probe, "http://127.0.0.1:{{ $web.port }}{{ .path }}"]
{{- else -}}
httpGet: {path: {{ .path }}, port: web}
{{- end }}
{{- end }}

{{- define "dtgol.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The pod of a role: (dict "root" $ "role" "worker" "values" .Values.worker). */ -}}
{{- define "dtgol.pod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "dtgol.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
  annotations:
    checksum/config: {{ $root.Values.config | sha256sum }}
spec:
  serviceAccountName: {{ include "dtgol.serviceAccount" $root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
  initContainers:
    # The kernels that were compiled with the image, to where this CPU's can be added: the root is read-only.
    - name: kernels
      image: {{ include "dtgol.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [cp, -r, "--preserve=mode,timestamps", /var/cache/dtgol/., /cache/]
      securityContext: {{ include "dtgol.container-security" $root | nindent 8 }}
      resources:
        requests: {cpu: 50m, memory: 32Mi}
        limits: {memory: 64Mi}
      volumeMounts:
        - {name: cache, mountPath: /cache}
  containers:
    - name: {{ .role }}
      image: {{ include "dtgol.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [{{ .role }}]
      env:
        - {name: DTGOL_KAFKA_BOOTSTRAP_SERVERS, value: {{ $root.Values.kafka.bootstrapServers | quote }}}
        - {name: DTGOL_KAFKA_PREFIX, value: {{ $root.Values.kafka.prefix | quote }}}
        - {name: DTGOL_WEB_HOST, value: "0.0.0.0"}
        - {name: DTGOL_WEB_PORT, value: {{ $root.Values.web.port | quote }}}
        # A folder of its own in the volume: it must belong to the user, which a mount point does not.
        - {name: DTGOL_WORKER_STATE_DIRECTORY, value: /var/lib/dtgol/state}
        {{- if $root.Values.config }}
        - {name: DTGOL_CONFIG, value: /etc/dtgol/config/dtgol.toml}
        {{- end }}
        {{- if $root.Values.web.tokenKey }}
        - {name: DTGOL_WEB_TOKEN_FILE, value: {{ printf "/etc/dtgol/secrets/%s" $root.Values.web.tokenKey | quote }}}
        {{- end }}
        {{- if .values.staticMembership }}
        - name: DTGOL_KAFKA_GROUP_INSTANCE_ID
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- end }}
        {{- with .values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: web, containerPort: {{ $root.Values.web.port }}}
      startupProbe:
        {{- include "dtgol.probe" (dict "root" $root "path" "/livez") | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 36
      livenessProbe:
        {{- include "dtgol.probe" (dict "root" $root "path" "/livez") | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      # Has its partitions, has restored their state, is moving.
      readinessProbe:
        {{- include "dtgol.probe" (dict "root" $root "path" "/readyz") | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      securityContext: {{ include "dtgol.container-security" $root | nindent 8 }}
      resources: {{ toYaml .values.resources | nindent 8 }}
      volumeMounts:
        - {name: cache, mountPath: /var/cache/dtgol}
        - {name: tmp, mountPath: /tmp}
        - {name: state, mountPath: /var/lib/dtgol}
        {{- if $root.Values.config }}
        - {name: config, mountPath: /etc/dtgol/config, readOnly: true}
        {{- end }}
        {{- if $root.Values.secretName }}
        - {name: secrets, mountPath: /etc/dtgol/secrets, readOnly: true}
        {{- end }}
  volumes:
    - {name: cache, emptyDir: {sizeLimit: 256Mi}}
    - {name: tmp, emptyDir: {sizeLimit: 256Mi}}
    # Outlives the container, so that the next process sees at which record one was killed.
    - {name: state, emptyDir: {sizeLimit: 16Mi}}
    {{- if $root.Values.config }}
    - {name: config, configMap: {name: {{ include "dtgol.name" $root }}}}
    {{- end }}
    {{- if $root.Values.secretName }}
    - {name: secrets, secret: {secretName: {{ $root.Values.secretName }}, defaultMode: 0440}}
    {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.affinity }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
