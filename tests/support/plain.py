"""The plain learner: the oracle that the fast one is compared with.

Written from the formulas of the paper and of docs/learner.md, in the order of one step, and from
nothing else: it shares only `types` and `config` with the core. Everything that can be recomputed
from the buffers is recomputed at every step; only what the method makes a state is one
(correlation, weights, risks, prototypes, and under amortisation the cutoff, `since` and the
densities). It is slow on purpose, answers `why` with nothing, and has no snapshots.
One long file on purpose: it is read beside docs/learner.md, from top to bottom.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, ndtri

from dtgol_core.config import Config, FeatureKind
from dtgol_core.types import (
    ExpertAnswer,
    FeatureValues,
    FloatArray,
    Forecast,
    LabelOutcome,
    LabelReceipt,
    Rejection,
    Value,
)

LEVELS_MAX = 32
DISTINCT_MAX = 15
KIND_EVIDENCE = 20
RETIRED = "\x00"
VALUE_MAX = 1e150
CLIP = 1e-12
LOOK_ID = "look" * 100
"""Longer than any id on the wire, so it meets no instance and no held label."""

PAPER_DECIDES: Mapping[str, Any] = {
    "experts": ["naive", "paper"],
    "combination": {"decides": "paper"},
}
"""Settings of a learner that is the plain one: no other experts, and the paper's alone decides."""
EXPIRE_STEP_MAX = 64
Settled = int | Literal["0 by default", "1 by default", "expired"]
"""What became of an instance: a true label was learnt, a default one, or none."""

Parents = list[tuple[int, int | None]]


# --- small mathematics ---------------------------------------------------------------------------


def entropy(p: float) -> float:
    """H(p) in nats, p clipped."""
    p = min(max(p, CLIP), 1 - CLIP)
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


def cross_entropy(p: float, y: float) -> float:
    """CE(p, y) in nats, p clipped."""
    p = min(max(p, CLIP), 1 - CLIP)
    return -y * math.log(p) - (1 - y) * math.log(1 - p)


def normal_density(a: float) -> float:
    """φ(a); 0 at ±∞."""
    return math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)


def padded(vector: FloatArray, columns: int) -> FloatArray:
    """A stored vector in today's columns: 0 in those that did not exist yet."""
    return np.concatenate([vector, np.zeros(columns - len(vector))])


def with_bias(vector: FloatArray) -> FloatArray:
    """The constant 1 comes first, so that new columns are simply appended."""
    return np.concatenate([[1.0], vector])


def probability(weights: FloatArray, vector: FloatArray) -> float:
    """σ(w·u), `vector` without its bias."""
    return float(expit(weights @ with_bias(vector)))


def gradient(weights: FloatArray, vectors: Sequence[FloatArray], y: Sequence[float]) -> FloatArray:
    """Sum over the rows of ∇CE(σ(w·u), y) = (σ(w·u) − y) u; not clipped."""
    total = np.zeros_like(weights)
    for vector, target in zip(vectors, y, strict=True):
        total += (probability(weights, vector) - target) * with_bias(vector)
    return total


# --- columns: named features to columns ----------------------------------------------------------


@dataclass
class Feature:
    """A feature that has been observed at least once."""

    json_type: str
    kind: FeatureKind
    declared: bool
    distinct: set[float] = field(default_factory=set)
    """Distinct values of an inferred number over all history, until it is continuous."""
    votes: dict[str, int] = field(default_factory=dict)
    """Cells so far by JSON type, while the kind is provisional."""


@dataclass(frozen=True)
class Column:
    """One column: a number (`level` None), a level of a nominal feature, or its `other`.

    After its feature has changed its kind it is that of `RETIRED` + name, which is never observed.
    """

    feature: str
    level: str | None = None
    other: bool = False


def json_type(value: Value) -> str:
    """boolean, number or string; a boolean is not a number here."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "unknown"


def accepted_types(name: str, config: Config, known: Mapping[str, Feature]) -> set[str]:
    """The JSON types that a value of this feature may have."""
    declared = config.features[name].kind if name in config.features else None
    if declared == "continuous":
        return {"number"}
    if declared == "ordinal":
        return {"number", "boolean"}
    if declared == "nominal":
        return {"string", "number"}
    return {known[name].json_type} if name in known else {"boolean", "number", "string"}


def read_value(
    name: str, value: Value, config: Config, known: Mapping[str, Feature]
) -> float | str | Rejection:
    """One observed value as a number or a level."""
    if json_type(value) not in accepted_types(name, config, known):
        return Rejection("kind-conflict", name)
    if value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return Rejection("not-finite", name)
    if abs(value) > VALUE_MAX:
        return Rejection("out-of-range", name)
    declared = config.features.get(name)
    if declared is not None and declared.kind == "nominal":
        return str(int(value)) if value == int(value) else Rejection("kind-conflict", name)
    if declared is not None and (
        (declared.low is not None and value < declared.low)
        or (declared.high is not None and value > declared.high)
    ):
        return Rejection("out-of-bounds", name)
    return float(value)


def is_json(value: Value) -> bool:
    """Whether JSON has such a value."""
    return json_type(value) != "unknown"


def is_missing(name: str, value: Value, config: Config) -> bool:
    """null, NaN, or a text that means it."""
    if value is None or (value != value and not config.columns.strict):
        return True
    declared = config.features[name].kind if name in config.features else None
    markers = [marker.lower() for marker in config.columns.missing]
    return isinstance(value, str) and value.strip().lower() in markers and declared != "nominal"


def read_record(
    record: FeatureValues, config: Config, known: Mapping[str, Feature], columns: Sequence[Column]
) -> dict[str, float | str] | Rejection:
    """The observed values of a record, or why it is refused; changes nothing."""
    values: dict[str, float | str] = {}
    needed = 0
    for name, value in record.items():
        if is_missing(name, value, config):
            continue
        read = read_value(name, value, config, known)
        if isinstance(read, Rejection):
            if read.reason == "kind-conflict" and not config.columns.strict and is_json(value):
                continue
            return read
        values[name] = read
        if name not in known:
            levels = config.features[name].levels if name in config.features else ()
            needed += max(1, len(levels))
    if needed and len(columns) + needed > config.copula.max_columns:
        return Rejection("too-many-columns", f"at most {config.copula.max_columns}")
    return values


def new_feature(name: str, value: float | str, first_type: str, config: Config) -> Feature:
    """A feature's declared kind, or the one inferred from its first value's JSON type."""
    declared = config.features[name].kind if name in config.features else None
    inferred: FeatureKind = "nominal" if isinstance(value, str) else "ordinal"
    votes = {} if config.columns.strict or declared else {first_type: 1}
    return Feature(first_type, declared or inferred, declared is not None, votes=votes)


def new_feature_columns(name: str, value: float | str, config: Config) -> list[Column]:
    """The columns a feature must have: its declared levels, its first level, or just one."""
    levels = config.features[name].levels if name in config.features else ()
    if levels:
        return [Column(name, level) for level in levels]
    return [Column(name, value if isinstance(value, str) else None)]


def update_kind(feature: Feature, value: float | str) -> None:
    """An inferred number turns continuous at its 15th distinct or first non-whole value."""
    if feature.declared or feature.json_type != "number" or isinstance(value, str):
        return
    feature.distinct.add(value)
    if value != math.floor(value) or len(feature.distinct) >= DISTINCT_MAX:
        feature.kind = "continuous"


def new_level_column(name: str, level: str, columns: Sequence[Column], most: int) -> list[Column]:
    """The column that a level not seen before adds, if any."""
    own = [column for column in columns if column.feature == name]
    levels = [column.level for column in own if not column.other]
    if level in levels or len(columns) >= most:
        return []
    if len(levels) < LEVELS_MAX:
        return [Column(name, level)]
    return [] if any(column.other for column in own) else [Column(name, other=True)]


def cell(values: Mapping[str, float | str], column: Column, columns: Sequence[Column]) -> float:
    """What a record has in a column; ⊥ is NaN."""
    if column.feature not in values:
        return math.nan
    value = values[column.feature]
    if not isinstance(value, str):
        return value
    if not column.other:
        return float(value == column.level)
    own = [c.level for c in columns if c.feature == column.feature and not c.other]
    return float(value not in own)


# --- copula: marginals, imputation, correlation; and the original space --------------------------


def continuous_latent(x: float, observed: FloatArray) -> float:
    """Φ⁻¹ of the mid-rank of x among the observed values of its column, x included."""
    below = int(np.sum(observed < x))
    equal = int(np.sum(observed == x))
    return float(ndtri((below + (equal + 1) / 2) / (len(observed) + 1)))


def ordinal_latent(x: float, observed: FloatArray) -> tuple[float, float]:
    """Mean and variance of the standard normal truncated to the interval of x."""
    lo = int(np.sum(observed < x)) / len(observed)
    hi = int(np.sum(observed <= x)) / len(observed)
    a, b = float(ndtri(lo)), float(ndtri(hi))
    mean = (normal_density(a) - normal_density(b)) / (hi - lo)
    a_term = a * normal_density(a) if math.isfinite(a) else 0.0
    b_term = b * normal_density(b) if math.isfinite(b) else 0.0
    return mean, max(0.0, 1 + (a_term - b_term) / (hi - lo) - mean * mean)


def original_value(x: float, observed: FloatArray) -> float:
    """x standardised by its column in the coarse buffer, clipped to ±5."""
    if observed.min() == observed.max():
        return 0.0
    deviation = float(np.std(observed))
    if deviation == 0:
        return 0.0
    return min(max((x - float(np.mean(observed))) / deviation, -5.0), 5.0)


def conditional(
    correlation: FloatArray, latent: FloatArray, left: FloatArray, ridge: float
) -> tuple[FloatArray, FloatArray]:
    """E step: the latent vector with its missing (NaN) cells filled in, and E = zzᵀ + C.

    `left` is v: the variance left in the interval of each observed cell.
    """
    size = len(latent)
    missing = np.isnan(latent)
    observed = ~missing
    while True:
        smooth = (1 - ridge) * correlation + ridge * np.eye(size)
        try:
            factor = cho_factor(smooth[np.ix_(observed, observed)])
            break
        except np.linalg.LinAlgError:
            ridge = min(1.0, ridge * 10)
    cross = smooth[np.ix_(observed, missing)]
    weights = np.asarray(cho_solve(factor, cross), dtype=np.float64)
    z = latent.copy()
    z[missing] = weights.T @ latent[observed]
    spread = np.diag(left[observed])
    c = np.zeros((size, size))
    c[np.ix_(observed, observed)] = spread
    c[np.ix_(missing, observed)] = weights.T @ spread
    c[np.ix_(observed, missing)] = spread @ weights
    c[np.ix_(missing, missing)] = (
        smooth[np.ix_(missing, missing)] - weights.T @ cross + weights.T @ spread @ weights
    )
    return z, np.outer(z, z) + c


def unit_diagonal(matrix: FloatArray) -> FloatArray:
    """corr: rescaled to a unit diagonal (γ ≤ ½ keeps every variance at ½ or more)."""
    scale = np.sqrt(np.diag(matrix))
    result = np.asarray(matrix / np.outer(scale, scale), dtype=np.float64)
    np.fill_diagonal(result, 1.0)
    return result


# --- graph: density ascents over the fine buffer -------------------------------------------------


def distances(vectors: FloatArray, others: FloatArray | None = None) -> FloatArray:
    """Euclidean distances of (nodes, columns) from each other or from `others`.

    Squares are added in column order.
    """
    others = vectors if others is None else others
    total = np.zeros((len(vectors), len(others)))
    for j in range(vectors.shape[1]):
        difference = vectors[:, j][:, None] - others[:, j][None, :]
        total += difference * difference
    result = np.sqrt(total)
    result[result < 1e-9] = 0.0
    return result


def cutoff_of(distance: FloatArray, percentile: float) -> float:
    """d_c: the percentile of the pairwise distances; else the smallest positive one; else 1."""
    pairs = distance[np.triu_indices(len(distance), 1)]
    if len(pairs) == 0:
        return 1.0
    cutoff = float(np.percentile(pairs, percentile))
    if cutoff > 0:
        return cutoff
    positive = pairs[pairs > 0]
    return float(positive.min()) if len(positive) else 1.0


def kernels(distance: FloatArray, cutoff: float) -> FloatArray:
    """exp(−d²/d_c²)."""
    return np.exp(-(distance * distance) / (cutoff * cutoff))


def exact_densities(distance: FloatArray, cutoff: float) -> FloatArray:
    """ρ_i: the sum of the kernels of all other nodes."""
    kernel = kernels(distance, cutoff)
    np.fill_diagonal(kernel, 0.0)
    return np.asarray(kernel.sum(axis=1), dtype=np.float64)


def parents_of(steps: Sequence[int], distance: FloatArray, densities: FloatArray) -> Parents:
    """P(i): the nearest node of higher density; the older is higher and nearer."""
    rounded = np.rint(densities * 1e9)
    nodes = range(len(steps))
    parents: Parents = []
    for i in nodes:
        higher = [j for j in nodes if (rounded[j], -steps[j]) > (rounded[i], -steps[i]) and j != i]
        nearest = min(higher, key=lambda j: (distance[i, j], steps[j]), default=None)
        parents.append((steps[i], None if nearest is None else steps[nearest]))
    return parents


# --- soft labels ---------------------------------------------------------------------------------


def fuse(views: Sequence[float], temperature: float) -> float:
    """The views' mean, weighted by exp(−H·T)."""
    weights = [math.exp(-entropy(view) * temperature) for view in views]
    return sum(w * v for w, v in zip(weights, views, strict=True)) / sum(weights)


def spread(
    parents: Parents,
    vectors: Mapping[int, FloatArray],
    truth: Mapping[int, int],
    weights: FloatArray,
    prototypes: Sequence[float],
    config: Config,
) -> tuple[FloatArray, dict[int, float]]:
    """Ascend, descend, refine: the refined classifier, and the labels it was refined on.

    Nodes are named by their steps. `truth` has the verified ones, `vectors` all of them.
    """
    settings = config.softlabels
    parent = dict(parents)
    labels = {step: float(y) for step, y in truth.items()}
    f = weights.copy()

    def take_frontier(frontier: list[int], linked: Mapping[int, list[int]]) -> None:
        nonlocal f
        fused = {}
        for j in frontier:
            intrinsic = probability(f, vectors[j])
            collective = prototypes[int(intrinsic > 0.5)]
            active = [labels[k] for k in linked[j] if k in labels]
            neighbour = sum(active) / len(active)
            fused[j] = fuse([intrinsic, collective, neighbour], settings.temperature)
        for _ in range(settings.frontier_steps):
            f = classifier_step(f, fused, vectors, settings.rate)
        labels.update(fused)

    children = {i: [k for k, above in parents if above == i] for i in vectors}
    while frontier := sorted(
        {p for i in labels if (p := parent[i]) is not None and p not in labels}
    ):
        take_frontier(frontier, children)
    only_parent = {i: [p] for i, p in parents if p is not None}
    while frontier := sorted(i for i, p in parents if p in labels and i not in labels):
        take_frontier(frontier, only_parent)
    for _ in range(settings.refine_steps):
        f = classifier_step(f, labels, vectors, settings.rate)
    return f, labels


def classifier_step(
    f: FloatArray, labels: Mapping[int, float], vectors: Mapping[int, FloatArray], rate: float
) -> FloatArray:
    """One gradient step on the mean soft cross entropy of the labelled nodes."""
    rows = sorted(labels)
    total = gradient(f, [vectors[i] for i in rows], [labels[i] for i in rows])
    return f - rate * total / len(rows)


# --- persistent tracks and risks -----------------------------------------------------------------


class Persistent:
    """The persistent weights of both spaces and the risks of their answers on arrival.

    Both experts have one. That of `naive` takes true labels alone whatever the settings; with the
    ablation `dual_track` that of `paper` takes every step.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.latent_weights: FloatArray = np.zeros(1)
        self.original_weights: FloatArray = np.zeros(1)
        self.latent_risk = 0.0
        self.original_risk = 0.0
        self.labels_learnt = 0

    def answers(self, latent: FloatArray, original: FloatArray) -> tuple[float, float]:
        """The probabilities of both spaces."""
        return (
            probability(self.latent_weights, latent),
            probability(self.original_weights, original),
        )

    def learn(
        self, latent: FloatArray, original: FloatArray, on_arrival: tuple[float, float], y: int
    ) -> None:
        """Risks, then one step in both spaces."""
        self.latent_risk += cross_entropy(on_arrival[0], y)
        self.original_risk += cross_entropy(on_arrival[1], y)
        self.labels_learnt += 1
        self.latent_weights = self.step(self.latent_weights, latent, y)
        self.original_weights = self.step(self.original_weights, original, y)

    def step(self, weights: FloatArray, vector: FloatArray, y: int) -> FloatArray:
        """w ← w − η (∇CE + l2·w), η = max(floor, rate/√labels), the bias not penalised."""
        tracks = self.config.tracks
        rate = tracks.rate / math.sqrt(self.labels_learnt)
        penalty = tracks.l2 * weights
        penalty[0] = 0.0
        moved: FloatArray = gradient(weights, [vector], [y]) + penalty
        return weights - max(rate, tracks.rate_floor) * moved

    def grow(self, columns: int) -> None:
        """Weight 0 for new columns."""
        self.latent_weights = padded(self.latent_weights, columns + 1)
        self.original_weights = padded(self.original_weights, columns + 1)

    def latent_weight(self) -> float:
        """α = softmax(−μR), the latent space's share; ½ before the first label."""
        if self.config.ablate.risk:
            return 1.0
        if self.labels_learnt == 0:
            return 0.5
        mu = math.sqrt(2 * math.log(2) / (self.config.ensemble.horizon or self.labels_learnt))
        return float(expit(-mu * (self.latent_risk - self.original_risk)))


# --- the learner ---------------------------------------------------------------------------------


@dataclass
class Instance:
    """One accepted record in the delay table, the window or the verified set."""

    id: str
    step: int
    event_time_ms: int | None
    latent: FloatArray
    original: FloatArray
    naive: tuple[float, float]
    """Persistent answers of both spaces on arrival, of the expert `naive`."""
    paper: tuple[float, float]
    """The same of the expert `paper`."""
    label: int | None = None
    """Queued while it waits; the truth once it is learnt."""


@dataclass
class EarlyLabel:
    """A label held until its features come."""

    y: int
    arrival_step: int


class PlainLearner:
    """The whole learner; `observe` is one step, in order.

    Inspection attributes hold what the last accepted record left behind: `parents`, `densities`
    (by step), `cutoff`, `since`, `soft_labels` (the unverified window's, by step), `walk_labels`
    (every node's, before refinement), `latent`, `original`, `correlation`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.step = 0
        self.clock_ms: int | None = None
        # delay table
        self.waiting: dict[str, Instance] = {}
        self.early: dict[str, EarlyLabel] = {}
        self.settled: dict[str, tuple[Settled, int]] = {}
        self.settled_log: list[str] = []
        self.expired_by: dict[str, str] = {}
        # columns and copula
        self.features: dict[str, Feature] = {}
        self.columns: list[Column] = []
        self.coarse: list[dict[str, float | str]] = []
        self.correlation: FloatArray = np.zeros((0, 0))
        self.latent: FloatArray = np.zeros(0)
        self.original: FloatArray = np.zeros(0)
        # graph
        self.window: list[Instance] = []
        self.verified: list[Instance] = []
        self.evicted: list[Instance] = []
        self.parents: Parents = []
        self.densities: dict[int, float] = {}
        self.cutoff = 1.0
        self.since = 0
        # soft labels
        start = config.softlabels.prototype_start
        self.prototypes = [1 - start, start]
        self.soft_labels: dict[int, float] = {}
        self.walk_labels: dict[int, float] = {}
        # tracks and risks of both experts
        self.naive = Persistent(config)
        self.paper = Persistent(config)
        self.latent_rehearsed: FloatArray = np.zeros(1)
        self.original_rehearsed: FloatArray = np.zeros(1)
        self.latent_transient: FloatArray = np.zeros(1)
        self.original_transient: FloatArray = np.zeros(1)

    # the verbs

    def observe(
        self, id: str, x: FeatureValues, event_time_ms: int | None = None
    ) -> Forecast | Rejection:
        """A feature record: one step, in order."""
        if id in self.waiting or id in self.settled:
            answer = self.peek(x, event_time_ms)
            return answer if isinstance(answer, Rejection) else replace(answer, repeat=True)
        before = copy.deepcopy((self.features, self.columns))
        self.vote(x)
        values = read_record(x, self.config, self.features, self.columns)
        if isinstance(values, Rejection):
            self.features, self.columns = before
            return values
        self.step += 1
        self.advance_clock(event_time_ms)
        learnt = self.drain()
        expired = self.expire()
        orphans = self.give_up_early()
        self.admit(x, values)
        self.map_record(values)
        self.update_graph()
        given = sum(not is_missing(name, value, self.config) for name, value in x.items())
        missing = sorted(before[0].keys() - values.keys())[:50]
        forecast = replace(
            self.predict(len(values)), conflicts=given - len(values), missing=tuple(missing)
        )
        expired += self.join(id, event_time_ms)
        default = self.config.delay.expired != "drop"
        return replace(
            forecast,
            learnt=tuple(learnt),
            expired=tuple(expired),
            defaulted=tuple(expired) if default else (),
            orphans=tuple(orphans),
        )

    def peek(self, x: FeatureValues, event_time_ms: int | None = None) -> Forecast | Rejection:
        """What `observe` would say; nothing changes, so nothing is reported as changed."""
        answer = copy.deepcopy(self).observe(LOOK_ID, x, event_time_ms)
        if isinstance(answer, Rejection):
            return answer
        return replace(answer, learnt=(), expired=(), defaulted=(), orphans=())

    def learn(self, id: str, y: int, event_time_ms: int | None = None) -> LabelReceipt:
        """A label event: only queues, by the label policy."""
        self.advance_clock(event_time_ms)
        y = int(y)
        if id in self.waiting:
            instance = self.waiting[id]
            if instance.label is None:
                instance.label = y
                return LabelReceipt(LabelOutcome.QUEUED)
            outcome = self.again(instance.label, y)
            if outcome is LabelOutcome.CORRECTED_REPLACED:
                instance.label = y
            return LabelReceipt(outcome)
        if id in self.early:
            outcome = self.again(self.early[id].y, y)
            if outcome is LabelOutcome.CORRECTED_REPLACED:
                self.early[id].y = y
            return LabelReceipt(outcome)
        if id in self.settled:
            return self.learn_settled(id, *self.settled[id], y)
        self.early[id] = EarlyLabel(y, self.step)
        orphans = []
        while len(self.early) > self.config.delay.early_max:
            orphans.append(next(iter(self.early)))
            del self.early[orphans[-1]]
        return LabelReceipt(LabelOutcome.EARLY, tuple(orphans))

    def learn_settled(self, id: str, known: Settled, step: int, y: int) -> LabelReceipt:
        """A label of an instance that has left the delay table."""
        if known == "expired":
            return LabelReceipt(LabelOutcome.LATE, setting=self.expired_by[id])
        if known == y:
            return LabelReceipt(LabelOutcome.REPEATED)
        if isinstance(known, int) and self.config.delay.corrected == "first":
            return LabelReceipt(LabelOutcome.CORRECTED_IGNORED)
        self.settle(id, y, step)
        if known == f"{y} by default":
            return LabelReceipt(LabelOutcome.CONFIRMED)
        for instance in self.verified:
            if instance.step == step:
                instance.label = y
                return LabelReceipt(LabelOutcome.CORRECTED_RELABELLED)
        return LabelReceipt(LabelOutcome.CORRECTION_TOO_LATE)

    def again(self, before: int, y: int) -> LabelOutcome:
        """A second label for one that is known."""
        if y == before:
            return LabelOutcome.REPEATED
        if self.config.delay.corrected == "last":
            return LabelOutcome.CORRECTED_REPLACED
        return LabelOutcome.CORRECTED_IGNORED

    def advance_clock(self, event_time_ms: int | None) -> None:
        """The stream's clock is the largest event time seen."""
        if event_time_ms is not None:
            before = event_time_ms if self.clock_ms is None else self.clock_ms
            self.clock_ms = max(event_time_ms, before)

    # 1. the queue is drained

    def drain(self) -> list[str]:
        """Learn what is due, in order of the instances' steps."""
        delay = self.config.delay
        due = [
            instance
            for instance in self.waiting.values()
            if instance.label is not None
            and (delay.release == "arrival" or instance.step + delay.steps <= self.step)
        ]
        due.sort(key=lambda instance: instance.step)
        for instance in due:
            self.learn_from(instance)
        return [instance.id for instance in due]

    def learn_from(self, instance: Instance) -> None:
        """Prototype, risks, persistent tracks; then the instance is verified."""
        y = instance.label
        assert y is not None
        size = len(self.columns)
        latent, original = padded(instance.latent, size), padded(instance.original, size)
        q = probability(self.paper.latent_weights, latent)
        if int(q > 0.5) == y:
            r = self.config.softlabels.prototype_rate
            self.prototypes[y] = (1 - r) * self.prototypes[y] + r * q
        self.naive.learn(latent, original, instance.naive, y)
        self.paper.learn(latent, original, instance.paper, y)
        del self.waiting[instance.id]
        self.settle(instance.id, y, instance.step)
        self.window = [other for other in self.window if other is not instance]
        self.verified = sorted([*self.verified, instance], key=lambda other: other.step)
        if len(self.verified) > self.config.graph.verified:
            self.evicted.append(self.verified.pop(0))
        self.rehearse()

    def rehearse(self) -> None:
        """One step on the verified set: of the rehearsing weights, or with one track of the only
        ones; without rehearsal the anchors are the persistent weights."""
        size = len(self.columns)
        latent = [padded(instance.latent, size) for instance in self.verified]
        original = [padded(instance.original, size) for instance in self.verified]
        if self.config.ablate.dual_track:
            only = self.paper
            only.latent_weights = self.rehearsal_step(only.latent_weights, latent)
            only.original_weights = self.rehearsal_step(only.original_weights, original)
        else:
            self.latent_rehearsed = self.rehearsal_step(self.latent_rehearsed, latent)
            self.original_rehearsed = self.rehearsal_step(self.original_rehearsed, original)

    def rehearsal_step(self, weights: FloatArray, vectors: Sequence[FloatArray]) -> FloatArray:
        """r ← r − η_R (mean ∇CE over the verified set + l2_R·r), the bias not penalised."""
        tracks = self.config.tracks
        truth = [float(instance.label or 0) for instance in self.verified]
        penalty = tracks.rehearsal_l2 * weights
        penalty[0] = 0.0
        mean = gradient(weights, vectors, truth) / len(truth)
        return weights - tracks.rehearsal_rate * (mean + penalty)

    def anchors(self) -> tuple[FloatArray, FloatArray]:
        """Where the transient tracks and the travelling classifier start."""
        if self.config.ablate.dual_track or self.config.tracks.rehearsal_rate == 0:
            return self.paper.latent_weights, self.paper.original_weights
        return self.latent_rehearsed, self.original_rehearsed

    def settle(self, id: str, outcome: Settled, step: int) -> None:
        """Remember an id that has left; of the last `settled_max` entries, the newest of each id.

        `settled_ms` is not modelled: it takes 4096 ids before the first are forgotten by it.
        """
        self.settled[id] = outcome, step
        self.settled_log.append(id)
        first = max(0, len(self.settled_log) - self.config.delay.settled_max)
        self.settled_log = self.settled_log[first:]
        self.settled = {each: self.settled[each] for each in self.settled_log}

    # 2. instances past their expiry leave

    def expire(self) -> list[str]:
        """Instances too old by steps or by event time, without a queued label; some at a time."""
        delay, clock = self.config.delay, self.clock_ms
        alone = [instance for instance in self.waiting.values() if instance.label is None]
        alone.sort(key=lambda instance: instance.step)
        by_steps = [
            i for i in alone if delay.expire_steps is not None
            and i.step + delay.expire_steps < self.step
        ][:EXPIRE_STEP_MAX]  # fmt: skip
        by_time = [
            (i.event_time_ms, i.step, i)
            for i in alone
            if i not in by_steps
            and delay.expire_ms is not None
            and i.event_time_ms is not None
            and clock is not None
            and i.event_time_ms + delay.expire_ms < clock
        ]
        by_time = sorted(by_time, key=lambda each: each[:2])[: EXPIRE_STEP_MAX - len(by_steps)]
        for instance in by_steps:
            self.leave(instance, "expire_steps")
        late = sorted((each for *_, each in by_time), key=lambda instance: instance.step)
        for instance in late:
            self.leave(instance, "expire_ms")
        return [instance.id for instance in [*by_steps, *late]]

    def leave(self, instance: Instance, setting: str) -> None:
        """An instance is learnt with the default label, or forgotten unanswered."""
        default = self.config.delay.expired
        if default != "drop":
            instance.label = default
            self.learn_from(instance)
            by_default: Settled = "1 by default" if default else "0 by default"
            self.settled[instance.id] = by_default, instance.step
            return
        del self.waiting[instance.id]
        self.expired_by[instance.id] = setting
        self.settle(instance.id, "expired", instance.step)
        if any(other is instance for other in self.window):
            self.window = [other for other in self.window if other is not instance]
            self.evicted.append(instance)

    def give_up_early(self) -> list[str]:
        """Held labels whose features did not come in time."""
        limit = self.config.delay.early_steps
        gone = [id for id, held in self.early.items() if self.step - held.arrival_step > limit]
        for id in gone:
            del self.early[id]
        return gone

    # 3. x_t enters the coarse buffer, is mapped, imputed; the correlation is updated

    def vote(self, x: FeatureValues) -> None:
        """Provisional features count a cell by its JSON type; the most frequent type decides."""
        for name, value in x.items():
            if is_missing(name, value, self.config) or not is_json(value):
                continue
            given = json_type(value)
            feature = self.features.get(name)
            if feature is None:
                kept = not self.config.columns.strict
                if kept and given not in accepted_types(name, self.config, {}):
                    self.features[name] = new_feature(name, 0.0, given, self.config)
                continue
            if not feature.votes:
                continue
            feature.votes[given] = feature.votes.get(given, 0) + 1
            if given == feature.json_type:
                if feature.votes[given] >= KIND_EVIDENCE:
                    feature.votes = {}
            elif feature.votes[given] > feature.votes[feature.json_type]:
                self.change_kind(name, feature, given)

    def change_kind(self, name: str, feature: Feature, given: str) -> None:
        """Another JSON type from now on; the columns of a text, or a number's, are retired."""
        if len(self.columns) >= self.config.copula.max_columns:
            return
        if "string" in (given, feature.json_type):
            self.columns = [
                replace(column, feature=RETIRED + name) if column.feature == name else column
                for column in self.columns
            ]
            for row in self.coarse:
                row.pop(name, None)
        kind: FeatureKind = "nominal" if given == "string" else "ordinal"
        self.features[name] = Feature(given, kind, declared=False, votes=feature.votes)

    def admit(self, x: FeatureValues, values: Mapping[str, float | str]) -> None:
        """New features in the record's order first; then new levels, in the features' order."""
        known = list(self.features)
        for name, value in values.items():
            if name not in self.features:
                self.features[name] = new_feature(name, value, json_type(x[name]), self.config)
            if not any(column.feature == name for column in self.columns):
                self.columns += new_feature_columns(name, value, self.config)
        most = self.config.copula.max_columns
        for name in [*known, *(name for name in values if name not in known)]:
            if name not in values:
                continue
            value = values[name]
            update_kind(self.features[name], value)
            if isinstance(value, str):
                self.columns += new_level_column(name, value, self.columns, most)
        size = len(self.columns)
        self.naive.grow(size)
        self.paper.grow(size)
        self.latent_rehearsed = padded(self.latent_rehearsed, size + 1)
        self.original_rehearsed = padded(self.original_rehearsed, size + 1)
        correlation = np.eye(size)
        before = len(self.correlation)
        correlation[:before, :before] = self.correlation
        self.correlation = correlation

    def map_record(self, values: dict[str, float | str]) -> None:
        """The vectors of x_t in both spaces, and the correlation after it."""
        self.coarse = [*self.coarse, values][-self.config.copula.window :]
        size = len(self.columns)
        latent, original = np.full(size, math.nan), np.zeros(size)
        left = np.zeros(size)
        for j, column in enumerate(self.columns):
            cells = np.array([cell(row, column, self.columns) for row in self.coarse])
            observed = cells[~np.isnan(cells)]
            x = float(cells[-1])
            if math.isnan(x):
                continue
            original[j] = original_value(x, observed)
            if self.features[column.feature].kind == "continuous":
                latent[j] = continuous_latent(x, observed)
            else:
                latent[j], left[j] = ordinal_latent(x, observed)
        self.original = original
        self.latent = self.complete(latent, left, original)

    def complete(self, latent: FloatArray, left: FloatArray, original: FloatArray) -> FloatArray:
        """Fill in the missing latent cells and update the correlation, unless ablated."""
        if self.config.ablate.copula:
            return original.copy()
        if self.config.ablate.marginals or bool(np.all(np.isnan(latent))):
            return np.where(np.isnan(latent), 0.0, latent)
        settings = self.config.copula
        z, second_moment = conditional(self.correlation, latent, left, settings.ridge)
        floor = 1 / settings.window if settings.gamma_floor is None else settings.gamma_floor
        gamma = max(1 / (self.step + 1), floor)
        self.correlation = unit_diagonal((1 - gamma) * self.correlation + gamma * second_moment)
        return z

    # 4. the graph is brought up to date; soft labels are made

    def fine_buffer(self) -> dict[int, FloatArray]:
        """The vectors of verified, unverified and t, by step, in today's columns."""
        size = len(self.columns)
        nodes = {i.step: padded(i.latent, size) for i in [*self.verified, *self.window]}
        nodes[self.step] = self.latent
        return dict(sorted(nodes.items()))

    def update_graph(self) -> None:
        """Densities (exact or amortised) and parents."""
        nodes = self.fine_buffer()
        steps = list(nodes)
        distance = distances(np.array(list(nodes.values())))
        if self.step == 1:
            refresh = True
        else:
            self.since += 1
            every = self.config.graph.refresh_steps
            refresh = self.since >= (max(1, len(nodes) // 8) if every is None else every)
        if refresh:
            self.since = 0
            self.cutoff = cutoff_of(distance, self.config.graph.percentile)
            exact = exact_densities(distance, self.cutoff)
            self.densities = dict(zip(steps, exact.tolist(), strict=True))
        else:
            self.amortise(nodes)
        self.evicted = []
        density = np.array([self.densities[step] for step in steps])
        self.parents = parents_of(steps, distance, density)

    def amortise(self, nodes: Mapping[int, FloatArray]) -> None:
        """Take the kernels of the nodes that left, in that order, add those of the new ones.

        New are t and, before it, learnt instances that had left the window earlier.
        """
        size = len(self.columns)
        for gone in self.evicted:
            if gone.step in nodes or gone.step not in self.densities:
                continue
            del self.densities[gone.step]
            for step, kernel in self.kernels_of(padded(gone.latent, size), nodes).items():
                self.densities[step] -= kernel
        for new in [step for step in nodes if step not in self.densities]:
            own = self.kernels_of(nodes[new], nodes)
            for step, kernel in own.items():
                self.densities[step] += kernel
            self.densities[new] = sum(own.values())
        assert set(self.densities) == set(nodes)

    def kernels_of(self, vector: FloatArray, nodes: Mapping[int, FloatArray]) -> dict[int, float]:
        """The kernels of one node, with the kept cutoff, at the nodes that have a density."""
        steps = [step for step in nodes if step in self.densities]
        if not steps:
            return {}
        distance = distances(vector[None, :], np.array([nodes[step] for step in steps]))
        return dict(zip(steps, kernels(distance, self.cutoff)[0].tolist(), strict=True))

    def make_soft_labels(self) -> None:
        """Soft labels of the unverified window, t not in it."""
        nodes = self.fine_buffer()
        truth = {i.step: i.label for i in self.verified if i.label is not None}
        f, self.walk_labels = spread(
            self.parents, nodes, truth, self.anchors()[0], self.prototypes, self.config
        )
        self.soft_labels = {i.step: probability(f, nodes[i.step]) for i in self.window}

    # 5. transient tracks branch off and both experts answer

    def predict(self, features_observed: int) -> Forecast:
        """The answers of both experts; that of `paper` is the forecast."""
        self.branch()
        beta = self.config.ensemble.beta
        zp, op = self.paper.answers(self.latent, self.original)
        zt = probability(self.latent_transient, self.latent)
        ot = probability(self.original_transient, self.original)
        alpha = self.paper.latent_weight()
        p = alpha * (beta * zp + (1 - beta) * zt) + (1 - alpha) * (beta * op + (1 - beta) * ot)
        alpha = self.naive.latent_weight()
        zn, on = self.naive.answers(self.latent, self.original)
        naive = alpha * zn + (1 - alpha) * on
        return Forecast(
            step=self.step,
            p=p,
            label=int(p > 0.5),
            naive=naive,
            labels_learnt=self.labels_learnt,
            unverified=len(self.waiting),
            observed_share=features_observed / len(self.features) if self.features else 0.0,
            uncertainty=entropy(p),
            experts={"naive": ExpertAnswer(naive, 0.0), "paper": ExpertAnswer(p, 1.0)},
        )

    def branch(self) -> None:
        """New transient weights; with one track they become the persistent ones of `paper`."""
        ablate = self.config.ablate
        self.soft_labels, self.walk_labels = {}, {}
        self.latent_transient, self.original_transient = self.anchors()
        if self.verified and not ablate.softlabels:
            self.make_soft_labels()
            self.latent_transient = self.transient_weights(
                self.latent_transient, {i.step: i.latent for i in self.window}
            )
            self.original_transient = self.transient_weights(
                self.original_transient, {i.step: i.original for i in self.window}
            )
        if ablate.dual_track:
            self.paper.latent_weights = self.latent_transient
            self.paper.original_weights = self.original_transient

    @property
    def labels_learnt(self) -> int:
        """Labels learnt so far."""
        return self.paper.labels_learnt

    def transient_weights(
        self, weights: FloatArray, vectors: Mapping[int, FloatArray]
    ) -> FloatArray:
        """w_T = anchor − η_T g over the soft-labelled window."""
        tracks = self.config.tracks
        if not vectors:
            return weights.copy()
        rows = [padded(vector, len(self.columns)) for vector in vectors.values()]
        g = gradient(weights, rows, [self.soft_labels[step] for step in vectors])
        if tracks.transient_reduction == "mean":
            g = g / len(rows)
        return weights - tracks.transient_rate * g

    # 6. t joins the unverified window and the delay table

    def join(self, id: str, event_time_ms: int | None) -> list[str]:
        """Keep what was predicted from; answer the ids that `pending_max` pushed out."""
        instance = Instance(
            id,
            self.step,
            event_time_ms,
            self.latent,
            self.original,
            self.naive.answers(self.latent, self.original),
            self.paper.answers(self.latent, self.original),
        )
        if id in self.early:
            instance.label = self.early.pop(id).y
        self.waiting[id] = instance
        self.window.append(instance)
        if len(self.window) > self.config.graph.unverified:
            self.evicted.append(self.window.pop(0))
        pushed_out = []
        while len(self.waiting) > self.config.delay.pending_max:
            oldest = min(self.waiting.values(), key=lambda other: other.step)
            self.leave(oldest, "pending_max")
            pushed_out.append(oldest.id)
        return pushed_out
