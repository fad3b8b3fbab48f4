"""The Helm chart: its values against their schema, its templates, and what helm makes of them.

Rendering needs helm on the path (`.ci/run` builds it); the rest does not. What was not run, an
installation in a cluster above all, is listed in docs/deploy.md.
"""

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from pipeline.settings import WorkerSettings
from pipeline.settings.declaration import LimitSettings

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "dtgol"
TEMPLATES = sorted((CHART / "templates").iterdir())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
CUSTOM = ("ServiceMonitor", "PrometheusRule", "ScaledObject")  # defined by operators
KUBERNETES = ("1.25", "1.37")
MIB = 2**20

EVERYTHING = {
    "config": '[learner]\npreset = "light"\n',
    "secretName": "dtgol",
    "web": {"tokenKey": "token"},
    "kafka": {"prefix": "prod-"},
    "worker": {"staticMembership": True, "nodeSelector": {"disk": "ssd"}},
    "networkPolicy": {"ingressFrom": [{"podSelector": {}}], "kafkaTo": [{"podSelector": {}}]},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "keda": {"enabled": True, "authenticationRef": "kafka-login"},
}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Values over defaults, as helm puts them together."""
    both = {
        key: merged(base[key], value) if isinstance(value, dict) else value
        for key, value in over.items()
    }
    return {**base, **both}


def paths(values: dict[str, Any], above: str = "") -> set[str]:
    """Every value by its path; the inside of an empty mapping or a list is the user's."""
    found: set[str] = set()
    for key, value in values.items():
        inner = paths(value, f"{above}{key}.") if isinstance(value, dict) and value else None
        found |= inner or {f"{above}{key}"}
    return found


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_values_follow_their_schema(values: dict[str, Any]) -> None:
    jsonschema.validate(merged(VALUES, values), SCHEMA)


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"terminationGracePeriodSeconds": 30}, "terminationGracePeriodSeconds"),
        ({"keda": {"minReplicas": 0}}, "minReplicas"),
        ({"kafka": {"bootstrapServers": "kafka"}}, "bootstrapServers"),
        ({"web": {"tokenKey": "token"}}, "secretName"),
        ({"worker": {"replica": 3}}, "worker"),
    ],
)
def test_values_that_would_do_harm_are_refused(values: dict[str, Any], where: str) -> None:
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate(merged(VALUES, values), SCHEMA)
    assert where in refused.value.absolute_path


def test_every_value_is_read_by_a_template_and_every_value_read_is_declared() -> None:
    text = "".join(path.read_text() for path in TEMPLATES)
    read = set(re.findall(r"\.Values\.([\w.]+)", text))
    read |= {f"web.{name}" for name in re.findall(r"\$web\.(\w+)", text)}
    for role in ("worker", "evaluator"):  # `dtgol.pod` has the values of a role as .values
        read |= {f"{role}.{name}" for name in re.findall(r"[ (]\.values\.(\w+)", text)}
    declared = paths(VALUES)
    unread = {path for path in declared if not any(f"{path}.".startswith(f"{r}.") for r in read)}
    assert unread == set()
    known = {path[:end] for path in declared for end in (*_dots(path), len(path))}
    assert read - known - {"evaluator.staticMembership"} == set()


def _dots(path: str) -> list[int]:
    return [place.start() for place in re.finditer(r"\.", path)]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_blocks_of_a_template_are_closed(path: Path) -> None:
    words = re.findall(r"{{-?\s*(if|with|range|define|end)\b", path.read_text())
    depth = 0
    for word in words:
        depth += -1 if word == "end" else 1
        assert depth >= 0
    assert depth == 0


def test_memory_holds_four_partitions_at_their_bounds() -> None:
    """docs/limits.md: the process, and per partition state, its copy, three queues."""
    state, queue = LimitSettings().state_bytes_max, WorkerSettings().queue_bytes_max
    needed = 210e6 + 4 * (2 * state + 3 * queue)
    assert needed <= int(VALUES["worker"]["resources"]["limits"]["memory"].removesuffix("Mi")) * MIB


@cache
def render(values: str) -> list[dict[str, Any]]:
    """What helm makes of values (JSON), which it takes from stdin."""
    command = ["helm", "template", "ward", str(CHART), "--namespace", "ml", "--values", "-"]
    # A helm built by `go install` takes itself for one of Kubernetes 1.20.
    command += ["--kube-version", KUBERNETES[-1]]
    done = subprocess.run(
        command, input=values, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def one(kind: str, name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The one object of a kind and name."""
    objects = render(json.dumps(values))
    (found,) = (o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))
    return found


@pytest.mark.helm
@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_what_is_rendered_follows_kubernetes_schemas(values: dict[str, Any], version: str) -> None:
    objects = render(json.dumps(values))
    plain = [each for each in objects if each["kind"] not in CUSTOM]
    for each in plain:
        kubernetes_validate.validate(each, version, strict=True)
    assert {"StatefulSet", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"} <= {
        each["kind"] for each in plain
    }


def definition(kind: str) -> dict[str, Any]:
    """The schema of a custom object, unknown fields refused, from a folder in DTGOL_CRDS."""
    folders = map(Path, os.environ["DTGOL_CRDS"].split(":"))
    (path,) = (path for folder in folders for path in folder.glob(f"*_{kind.lower()}s.yaml"))
    (version,) = yaml.safe_load(path.read_text())["spec"]["versions"]
    found: dict[str, Any] = strict(version["schema"]["openAPIV3Schema"])
    found["properties"]["metadata"] = {"type": "object"}  # the same for every kind, not in it
    return found


def strict(schema: Any) -> Any:
    """A schema that refuses fields it does not name, where the cluster would drop them."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if isinstance(schema, str):
        return schema.replace("^(?i)", "(?i)^")  # Go takes a flag anywhere in a pattern
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


@pytest.mark.crds
@pytest.mark.parametrize("kind", CUSTOM)
def test_custom_objects_follow_their_definitions(kind: str) -> None:
    schema = definition(kind)
    objects = [each for each in render(json.dumps(EVERYTHING)) if each["kind"] == kind]
    assert objects
    for each in objects:
        jsonschema.validate(each, schema)
        with pytest.raises(jsonschema.ValidationError, match="surplus"):
            jsonschema.validate({**each, "spec": {**each["spec"], "surplus": 1}}, schema)


@pytest.mark.helm
@pytest.mark.parametrize(("kind", "role"), [("StatefulSet", "worker"), ("Deployment", "evaluator")])
def test_pods_are_locked_down_and_probed(kind: str, role: str) -> None:
    workload = one(kind, f"ward-dtgol-{role}", {})
    pod = workload["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 45
    assert pod["automountServiceAccountToken"] is False
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (
        10001,
        True,
    )
    for container in pod["initContainers"] + pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
    (container,) = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    selector = workload["spec"]["selector"]["matchLabels"]
    assert selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.helm
def test_with_a_token_readiness_is_asked_with_it_and_liveness_without() -> None:
    pod = one("StatefulSet", "ward-dtgol-worker", EVERYTHING)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["readinessProbe"]["exec"]["command"][-1].endswith(":8080/readyz")
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["DTGOL_WEB_TOKEN_FILE"] == "/etc/dtgol/secrets/token"
    assert "DTGOL_KAFKA_GROUP_INSTANCE_ID" in env


@pytest.mark.helm
def test_keda_looks_at_features_alone_and_leaves_replicas_to_itself() -> None:
    scaled = one("ScaledObject", "ward-dtgol-worker", EVERYTHING)["spec"]
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"]["topic"] == "prod-features"
    assert trigger["metadata"]["consumerGroup"] == "prod-dtgol-worker"
    assert trigger["metadata"]["excludePersistentLag"] == "true"
    assert scaled["minReplicaCount"] >= 1
    assert "replicas" not in one("StatefulSet", "ward-dtgol-worker", EVERYTHING)["spec"]


@pytest.mark.helm
def test_rules_and_dashboards_of_the_repository_are_in_the_chart() -> None:
    """Whatever is in deploy/: a rule file is a YAML file with groups, a dashboard a JSON file."""
    deploy = CHART.parents[1]
    read = [yaml.safe_load(path.read_text()) for path in (deploy / "prometheus").rglob("*.y*ml")]
    groups = [group for file in read for group in file.get("groups", [])]
    objects = render(json.dumps(EVERYTHING))
    rules = [each["spec"]["groups"] for each in objects if each["kind"] == "PrometheusRule"]
    assert [group for each in rules for group in each] == groups != []
    boards = {path.name: path.read_text() for path in (deploy / "grafana").rglob("*.json")}
    rendered: dict[str, str] = {}
    for each in objects:
        if "grafana_dashboard" in each["metadata"].get("labels", {}):
            rendered |= each["data"]
    assert rendered.keys() == boards.keys() != set()
    for name, text in boards.items():
        assert json.loads(rendered[name]) == json.loads(text)


@pytest.mark.helm
def test_helm_itself_refuses_what_the_schema_refuses() -> None:
    with pytest.raises(AssertionError, match="terminationGracePeriodSeconds"):
        render('{"terminationGracePeriodSeconds": 5}')
