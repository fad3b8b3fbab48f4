"""Tracker: a mixture model of both classes that follows clouds which move while labels are late."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from dtgol_core.compiled import compiled
from dtgol_core.config import Config
from dtgol_core.state import SnapshotError, flatten, require_int, require_shape, subsection
from dtgol_core.types import BoolArray, FloatArray, Inspection, Instance, IntArray, SingleArray

VERIFIED, SHADOW, LIVE = range(3)
"""First index of the arrays of the mixtures."""
PER_CLASS = 4
COMPONENTS = 2 * PER_CLASS
"""Those of class 0 first."""
BLOCK = 48
"""Neighbouring columns whose covariance is kept, so that the cost is linear beyond. Measured: 0.03
ms per record at 16 columns, 0.1 at 64, 0.9 at 512. With blocks of 64 the latter is 1.3; with those
of 32 it is 0.6, but tables of 34 and 36 columns lose (ionosphere: .21 to .29 CER)."""

LABEL_DECAY, WAITING_DECAY = math.exp(-1 / 100), math.exp(-1 / 60)
LABEL_SCATTER_DECAY, WAITING_SCATTER_DECAY = math.exp(-1 / 300), math.exp(-1 / 180)
PRIOR_DECAY = math.exp(-1 / 200)
PRIOR_MASS, PRIOR_VARIANCE, RIDGE = 5.0, 0.5, 1e-3
REFRESH = 20
FOLLOWED_PER_RECORD = 32
LABELS_TO_LEAVE = 32
"""With so many labels a shadow that left from fewer is given up: what it would tell is poor."""
WAITING_STEPS = 4096
LOGIT_MAX = 8.0
VALUE_MAX = 5.0
WEIGHT_MIN = 1e-9
SHARE_MIN = math.exp(-14.0)
CLASS_SHARE_MIN = 1e-6
SCATTER_SHARE_MIN = 1e-3
LIGHT, RESET = 0.02, 0.1
"""A component below so much of its class' mean weight is set anew, at so much of it."""
APART = 0.01
"""Squared distance from all others of its class at which a component may be placed."""
RATE_MIN, RATE_MAX = 0.01, 0.99


class Tracker:
    """Gaussian components per class, carried from the last true labels to the present.

    Parameters
    ----------
    config
        Nothing of it: the numbers are constants, chosen on generated streams of moving clouds.

    Attributes
    ----------
    weight, mass, mean, pull, scatter, precision, absorbed
        The three mixtures: verified, shadow, live. ``pull`` is precision times mean.
    waiting
        Records without a label, of the last 4,096 steps.

    Notes
    -----
    ``logit = log π/(1−π) + log f_1(x) − log f_0(x)``, each ``f`` a mixture of four normal densities
    with one covariance for all. *Verified* learns true labels. *Shadow* leaves from a copy of it
    and absorbs the waiting records oldest first, 32 per record, each with its own posterior as
    label; arrived at the present it becomes *live*, which answers and goes on with what arrives.
    All formulas are in docs/learner.md. Cost per record: O(32·columns·min(48, columns)), about
    30 µs at 16 columns; state: 18 kB at 16 columns, and five quarters of the vectors that wait.

    It answers for the present: asked about an old record it would use what has been seen since. A
    waiting record therefore keeps its answer, the one on arrival and then the shadow's.

    References
    ----------
    Dyer, Capo and Polikar (2014), COMPOSE: a semisupervised learning framework for initially
    labeled nonstationary streaming data, IEEE TNNLS; Souza et al. (2015), Data stream
    classification guided by clustering on nonstationary environments and extreme verification
    latency, SDM. Both move labels along clouds in batches; here it is record by record, and true
    labels that come late correct it.
    """

    name: ClassVar[str] = "tracker"
    kept: ClassVar[tuple[str, ...]] = ()
    scales: ClassVar[tuple[str, ...]] = ("completed",)

    def __init__(self, config: Config) -> None:
        self.weight = np.zeros((3, COMPONENTS))
        self.mass = np.zeros(3)
        self.mean = np.zeros((3, COMPONENTS, 0))
        self.pull = np.zeros((3, COMPONENTS, 0))
        self.scatter = np.zeros((3, 0, 0))
        self.precision = np.zeros((3, 0, 0))
        self.absorbed = np.zeros(3, dtype=np.int64)
        self.class_counts = np.ones(2)
        self.mean_step = 0.0
        """The mean time of what is verified."""
        self.cursor = -1
        """The step from which the shadow goes on; -1: there is none."""
        self.live = False
        self.waiting = Waiting(0)

    def observe(self, instance: Instance) -> tuple[()]:
        """The shadow follows the waiting records; the record begins to wait."""
        if self.absorbed[VERIFIED]:
            self.cursor, self.live = _advance(
                *self.waiting.rows_in_order(),
                self.mean_step,
                self.cursor,
                self.live,
                self._prior(),
                *self._mixtures(),
            )
        completed = instance.vectors.completed
        self.waiting.add(instance.step, completed, self._answer(completed))
        return ()

    def score(self, instance: Instance) -> float:
        """What a waiting record keeps; else the answer for the present."""
        kept = self.waiting.answer(instance.step)
        return self._answer(instance.vectors.completed) if kept is None else kept

    def _answer(self, completed: SingleArray) -> float:
        """The posterior by the live mixture, or by the verified one before there is a live one."""
        if not self.absorbed[VERIFIED]:
            return 0.5
        which = LIVE if self.live else VERIFIED
        return _score(completed, which, self._prior(), self.weight, self.mean, self.pull)

    def learn(self, instance: Instance, label: int) -> None:
        """The verified mixture absorbs the record under its true label."""
        self.waiting.remove(instance.step)
        labels = int(self.absorbed[VERIFIED]) + 1
        rate = max(1.0 / labels, 1.0 - LABEL_DECAY)
        self.mean_step += rate * (instance.step - self.mean_step)
        _learn(instance.vectors.completed, label, self._prior(), *self._mixtures())
        self.class_counts *= PRIOR_DECAY
        self.class_counts[label] += 1.0
        if labels == LABELS_TO_LEAVE:
            self.cursor = -1

    def forget(self, step: int) -> None:
        """The record waits no longer."""
        self.waiting.remove(step)

    def correct(self, step: int, label: int) -> bool:
        """No instance is kept with its label."""
        return False

    def grow(self, columns: int) -> None:
        """Add columns in which all means and all waiting records are 0."""
        known = self.mean.shape[2]
        wider = known + columns
        self.mean = _widened(self.mean, (3, COMPONENTS, wider))
        self.pull = _widened(self.pull, (3, COMPONENTS, wider))
        self.scatter = _widened(self.scatter, (3, wider, min(BLOCK, wider)))
        self.precision = _widened(self.precision, (3, wider, min(BLOCK, wider)))
        fresh = np.arange(known, wider)
        variance = PRIOR_MASS * PRIOR_VARIANCE / (self.mass + PRIOR_MASS) + RIDGE
        self.precision[:, fresh, fresh % BLOCK] = 1.0 / variance[:, None]
        self.waiting.grow(columns)

    def contributions(self, instance: Instance) -> FloatArray:
        """The parts of the classes' mean scores, weighed by the shares of their components."""
        moved = np.zeros(self.mean.shape[2])
        if self.absorbed[VERIFIED]:
            which = LIVE if self.live else VERIFIED
            completed = instance.vectors.completed
            _contributions(completed, which, self.weight, self.mean, self.pull, moved)
        return moved

    def inspect(self) -> Inspection:
        """How many labels and waiting records there are, and the share of ones among the labels."""
        return Inspection(
            {
                "labels": float(self.absorbed[VERIFIED]),
                "waiting": float(len(self.waiting)),
                "prior": self._prior(),
            },
            {},
        )

    def _prior(self) -> float:
        zeros, ones = self.class_counts.tolist()
        share: float = ones / (zeros + ones)
        return min(max(share, RATE_MIN), RATE_MAX)

    def _mixtures(self) -> tuple[Any, ...]:
        return (
            self.absorbed,
            self.weight,
            self.mass,
            self.mean,
            self.pull,
            self.scatter,
            self.precision,
        )

    def snapshot(self) -> dict[str, Any]:
        """The mixtures, where the shadow is, and the waiting records."""
        arrays = {name: getattr(self, name).copy() for name in _ARRAYS}
        own = {"mean_step": self.mean_step, "cursor": self.cursor, "live": self.live}
        return arrays | own | flatten({"waiting": self.waiting.snapshot()})

    @classmethod
    def restore(cls, config: Config, snapshot: Mapping[str, Any], columns: int) -> Self:
        """The expert that `snapshot` described."""
        tracker = cls(config)
        tracker.grow(columns)
        for name in _ARRAYS:
            array = snapshot[name]
            require_shape(name, array, getattr(tracker, name).shape)
            if not np.isfinite(array).all():
                raise SnapshotError(f"the snapshot is damaged: {name} is not finite")
            setattr(tracker, name, array.copy())
        if (tracker.absorbed < 0).any() or (tracker.weight < 0.0).any():
            raise SnapshotError("the snapshot is damaged: a negative count or weight")
        if not (tracker.class_counts > 0.0).all():
            raise SnapshotError("the snapshot is damaged: a class count that is not positive")
        tracker.mean_step, tracker.live = snapshot["mean_step"], snapshot["live"]
        tracker.cursor = require_int(snapshot["cursor"])
        if not (0.0 <= tracker.mean_step < 2.0**63 and -1 <= tracker.cursor < 2**63):
            raise SnapshotError("the snapshot is damaged: a step that cannot be")
        tracker.waiting = Waiting.restore(subsection(snapshot, "waiting"), columns)
        return tracker


_ARRAYS = (
    "absorbed",
    "class_counts",
    "weight",
    "mass",
    "mean",
    "pull",
    "scatter",
    "precision",
)


def _widened(array: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """The array in the corner of a larger one of zeros."""
    wider = np.zeros(shape)
    wider[tuple(map(slice, array.shape))] = array
    return wider


class Waiting:
    """The records of the last 4,096 steps that have no label yet, in the order of their steps.

    Rows that have left stay where they are until the arrays are full; then the others move
    together, into arrays a quarter larger than they need. Cost of a record: O(columns), amortised.
    """

    def __init__(self, columns: int) -> None:
        self.steps = np.zeros(0, dtype=np.int64)
        self.rows: SingleArray = np.zeros((0, columns), dtype=np.float32)
        self.waits = np.zeros(0, dtype=np.bool_)
        self.answers = np.zeros(0)
        """The newest answer to each, on arrival or by the shadow."""
        self.start = 0
        """Before it no row waits; rows count up to `end`."""
        self.end = 0

    def __len__(self) -> int:
        return int(self.waits[self.start : self.end].sum())

    @property
    def state_bytes(self) -> int:
        """Memory of what waits; the spare room depends on when the arrays were last made."""
        return len(self) * int(self.rows.itemsize * self.rows.shape[1] + 17)

    def rows_in_order(self) -> tuple[IntArray, SingleArray, BoolArray, FloatArray, int, int]:
        """Steps, rows, which of them wait and answers; those from start to end count."""
        return self.steps, self.rows, self.waits, self.answers, self.start, self.end

    def answer(self, step: int) -> float | None:
        """The answer that the record of a step keeps, if it waits."""
        newest = self.end - 1
        if newest >= self.start and self.steps[newest] == step:
            place = newest
        else:
            place = _find(self.steps, self.start, self.end, step)
        if place < self.end and self.steps[place] == step and self.waits[place]:
            return float(self.answers[place])
        return None

    def add(self, step: int, row: SingleArray, answer: float) -> None:
        """A record begins to wait; those of 4,096 steps ago have waited too long."""
        if self.end == len(self.steps):
            kept = np.flatnonzero(self.waits[self.start : self.end]) + self.start
            self._hold(self.steps[kept], self.rows[kept], self.answers[kept])
        self.answers[self.end] = answer
        self.start = _append(
            self.steps, self.rows, self.waits, self.start, self.end, step, row, WAITING_STEPS
        )
        self.end += 1

    def remove(self, step: int) -> None:
        """The record of a step waits no longer, if it did."""
        _remove(self.steps, self.waits, self.start, self.end, step)

    def grow(self, columns: int) -> None:
        """Add columns of 0."""
        fresh = np.zeros((len(self.rows), columns), dtype=np.float32)
        self.rows = np.concatenate([self.rows, fresh], axis=1)

    def _hold(self, steps: IntArray, rows: SingleArray, answers: FloatArray) -> None:
        """Hold these rows, all of which wait, with room for a quarter more."""
        count = len(steps)
        room = count + count // 4 + 64
        self.steps, self.waits = np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.bool_)
        self.rows = np.zeros((room, rows.shape[1]), dtype=np.float32)
        self.answers = np.zeros(room)
        self.steps[:count], self.rows[:count], self.waits[:count] = steps, rows, True
        self.answers[:count] = answers
        self.start, self.end = 0, count

    def snapshot(self) -> dict[str, Any]:
        """The rows that wait."""
        kept = np.flatnonzero(self.waits[self.start : self.end]) + self.start
        return {"steps": self.steps[kept], "rows": self.rows[kept], "answers": self.answers[kept]}

    @staticmethod
    def restore(snapshot: Mapping[str, Any], columns: int) -> "Waiting":
        """The records that `snapshot` described, over so many columns."""
        waiting, steps, answers = Waiting(columns), snapshot["steps"], snapshot["answers"]
        require_shape("rows", snapshot["rows"], (len(steps), columns))
        require_shape("answers", answers, (len(steps),))
        if not ((answers >= 0.0) & (answers <= 1.0)).all():
            raise SnapshotError("the snapshot is damaged: an answer that is no probability")
        if len(steps) > WAITING_STEPS or not (np.diff(steps) > 0).all():
            raise SnapshotError("the snapshot is damaged: waiting records out of order")
        waiting._hold(steps, snapshot["rows"], answers)
        return waiting


@compiled
def _append(
    steps: IntArray,
    rows: SingleArray,
    waits: BoolArray,
    start: int,
    end: int,
    step: int,
    row: SingleArray,
    limit: int,
) -> int:
    """Write a row at `end`; the start of the rows that still wait."""
    steps[end] = step
    waits[end] = True
    for column in range(len(row)):
        rows[end, column] = row[column]
    while start < end and (not waits[start] or steps[start] <= step - limit):
        waits[start] = False
        start += 1
    return start


@compiled
def _find(steps: IntArray, start: int, end: int, step: int) -> int:
    """The first place from `start` whose step is not before `step`."""
    low, high = start, end
    while low < high:
        middle = (low + high) // 2
        if steps[middle] < step:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _remove(steps: IntArray, waits: BoolArray, start: int, end: int, step: int) -> None:
    place = _find(steps, start, end, step)
    if place < end and steps[place] == step:
        waits[place] = False


@compiled
def _load(row: SingleArray, x: FloatArray) -> None:
    """A row as numbers within ±5; what is no number is 0."""
    for column in range(len(x)):
        value = row[column]
        if value > VALUE_MAX:
            x[column] = VALUE_MAX
        elif value >= -VALUE_MAX:
            x[column] = value
        elif value < -VALUE_MAX:
            x[column] = -VALUE_MAX
        else:
            x[column] = 0.0


@compiled
def _sigmoid(logit: float) -> float:
    if logit >= 0.0:
        return 1.0 / (1.0 + math.exp(-logit))
    e = math.exp(logit)
    return e / (1.0 + e)


@compiled
def _refresh(
    mass: float, mean: FloatArray, pull: FloatArray, scatter: FloatArray, precision: FloatArray
) -> None:
    """Precision from scatter, block by block, by Gauss and Jordan; pull from precision and mean."""
    columns, total = mean.shape[1], mass + PRIOR_MASS
    for first in range(0, columns, BLOCK):
        size = min(BLOCK, columns - first)
        block = precision[first : first + size]
        spread = scatter[first : first + size]
        for i in range(size):
            for j in range(size):
                block[i, j] = spread[i, j] / total
            block[i, i] += PRIOR_MASS * PRIOR_VARIANCE / total + RIDGE
        for pivot in range(size):
            above = block[pivot]
            inverse = 1.0 / above[pivot]
            for j in range(size):
                above[j] *= inverse
            above[pivot] = inverse
            for i in range(size):
                if i != pivot:
                    row = block[i]
                    factor = row[pivot]
                    row[pivot] = 0.0
                    for j in range(size):
                        row[j] -= factor * above[j]
        for k in range(COMPONENTS):
            centre = mean[k, first : first + size]
            pulled = pull[k, first : first + size]
            for i in range(size):
                pulled[i] = 0.0
            for j in range(size):
                row = block[j]
                value = centre[j]
                for i in range(size):
                    pulled[i] += row[i] * value


@compiled
def _posterior(
    x: FloatArray,
    prior: float,
    weight: FloatArray,
    mean: FloatArray,
    pull: FloatArray,
    share: FloatArray,
) -> float:
    """The log-odds of class 1; `share` becomes the shares of the components in their class."""
    for k in range(COMPONENTS):
        score, centre, pulled = 0.0, mean[k], pull[k]
        for i in range(len(x)):
            score += pulled[i] * (x[i] - 0.5 * centre[i])
        share[k] = score
    logit = math.log(prior / (1.0 - prior))
    density, known = 0.0, 0
    for first in (0, PER_CLASS):
        top, total, held = -math.inf, 0.0, 0.0
        for k in range(first, first + PER_CLASS):
            if weight[k] > 0.0 and share[k] > top:
                top = share[k]
        for k in range(first, first + PER_CLASS):
            if weight[k] > 0.0:
                share[k] = weight[k] * math.exp(share[k] - top)
                total += share[k]
                held += weight[k]
            else:
                share[k] = 0.0
        if held > 0.0:
            known += 1
            for k in range(first, first + PER_CLASS):
                share[k] /= total
            log_density = top + math.log(total / held)
            density = log_density if first == 0 else log_density - density
    return logit + density if known == 2 else logit


@compiled
def _absorb(
    x: FloatArray,
    p: float,
    share: FloatArray,
    decay: float,
    scatter_decay: float,
    weight: FloatArray,
    mean: FloatArray,
    pull: FloatArray,
    scatter: FloatArray,
    precision: FloatArray,
    work: FloatArray,
) -> None:
    """Weights, scatter, means and pulls take in a vector; the mass is the caller's.

    Rows are taken as views before they are looped over: plain indices let Numba use the wide
    registers, sums of indices do not.
    """
    columns = len(x)
    for k in range(COMPONENTS):
        weight[k] *= decay
        if weight[k] < WEIGHT_MIN:
            weight[k] = 0.0
        q = p if k >= PER_CLASS else 1.0 - p
        rate = 0.0
        if q >= CLASS_SHARE_MIN and share[k] >= SHARE_MIN:
            gained = q * share[k]
            weight[k] += gained
            rate = gained / weight[k]
            if gained > SCATTER_SHARE_MIN:
                centre = mean[k]
                for i in range(columns):
                    work[i] = x[i] - centre[i]
                factor = gained * (1.0 - rate)
                for first in range(0, columns, BLOCK):
                    part = work[first : first + BLOCK]
                    block = scatter[first : first + BLOCK]
                    for i in range(len(part)):
                        row, scaled = block[i], factor * part[i]
                        for j in range(len(part)):
                            row[j] = scatter_decay * row[j] + scaled * part[j]
                scatter_decay = 1.0  # once, with the first; there is one, for the shares add up
        share[k] = rate
    for i in range(columns):
        work[i] = 0.0
    for first in range(0, columns, BLOCK):
        part = work[first : first + BLOCK]
        block = precision[first : first + BLOCK]
        for i in range(len(part)):
            row, value = block[i], x[first + i]
            for j in range(len(part)):
                part[j] += row[j] * value
    for k in range(COMPONENTS):
        rate = share[k]
        if rate > 0.0:
            centre, pulled = mean[k], pull[k]
            for i in range(columns):
                centre[i] += rate * (x[i] - centre[i])
            for i in range(columns):
                pulled[i] += rate * (work[i] - pulled[i])


@compiled
def _is_apart(x: FloatArray, first: int, weight: FloatArray, mean: FloatArray) -> bool:
    """Whether a component of a class may be placed here: no other one of it is where x is.

    Two components in one place stay together but for rounding, which would decide what they become.
    """
    for k in range(first, first + PER_CLASS):
        if weight[k] > 0.0:
            squares = 0.0
            for column in range(len(x)):
                difference = x[column] - mean[k, column]
                squares += difference * difference
            if squares < APART:
                return False
    return True


@compiled
def _lightest(first: int, weight: FloatArray) -> int:
    """The component of a class with the least weight, the first of equals."""
    lightest = first
    for k in range(first + 1, first + PER_CLASS):
        if weight[k] < weight[lightest]:
            lightest = k
    return lightest


@compiled
def _learn(
    completed: SingleArray,
    label: int,
    prior: float,
    absorbed: IntArray,
    weight: FloatArray,
    mass: FloatArray,
    mean: FloatArray,
    pull: FloatArray,
    scatter: FloatArray,
    precision: FloatArray,
) -> None:
    """The verified mixture absorbs a vector under its true label."""
    columns = mean.shape[2]
    x, work, share = np.empty(columns), np.empty(columns), np.empty(COMPONENTS)
    _load(completed, x)
    verified = (
        weight[VERIFIED],
        mean[VERIFIED],
        pull[VERIFIED],
        scatter[VERIFIED],
        precision[VERIFIED],
    )
    first = label * PER_CLASS
    _posterior(x, prior, verified[0], verified[1], verified[2], share)
    apart = _is_apart(x, first, verified[0], verified[1])
    placed, lightest = False, _lightest(first, verified[0])
    if apart and weight[VERIFIED, lightest] == 0.0:
        placed = True
        for k in range(COMPONENTS):
            share[k] = 1.0 if k == lightest else 0.0
    _absorb(x, float(label), share, LABEL_DECAY, LABEL_SCATTER_DECAY, *verified, work)
    mass[VERIFIED] = LABEL_SCATTER_DECAY * mass[VERIFIED] + 1.0
    if apart and not placed:
        lightest, total = _lightest(first, verified[0]), 0.0
        for k in range(first, first + PER_CLASS):
            total += weight[VERIFIED, k]
        if weight[VERIFIED, lightest] < LIGHT * total / PER_CLASS:
            placed = True
            weight[VERIFIED, lightest] = RESET * total / PER_CLASS
            for column in range(columns):
                mean[VERIFIED, lightest, column] = x[column]
    absorbed[VERIFIED] += 1
    if placed or absorbed[VERIFIED] < REFRESH or absorbed[VERIFIED] % REFRESH == 0:
        _refresh(
            mass[VERIFIED], mean[VERIFIED], pull[VERIFIED], scatter[VERIFIED], precision[VERIFIED]
        )


@compiled
def _follow(
    row: SingleArray,
    prior: float,
    which: int,
    absorbed: IntArray,
    weight: FloatArray,
    mass: FloatArray,
    mean: FloatArray,
    pull: FloatArray,
    scatter: FloatArray,
    precision: FloatArray,
    x: FloatArray,
    work: FloatArray,
    share: FloatArray,
) -> float:
    """A mixture absorbs a vector under its own posterior; the answer to the vector before that."""
    _load(row, x)
    logit = _posterior(x, prior, weight[which], mean[which], pull[which], share)
    _absorb(
        x,
        _sigmoid(logit),
        share,
        WAITING_DECAY,
        WAITING_SCATTER_DECAY,
        weight[which],
        mean[which],
        pull[which],
        scatter[which],
        precision[which],
        work,
    )
    mass[which] = WAITING_SCATTER_DECAY * mass[which] + 1.0
    absorbed[which] += 1
    if absorbed[which] % REFRESH == 0:
        _refresh(mass[which], mean[which], pull[which], scatter[which], precision[which])
    return _sigmoid(min(max(logit, -LOGIT_MAX), LOGIT_MAX))


@compiled
def _advance(
    steps: IntArray,
    rows: SingleArray,
    waits: BoolArray,
    answers: FloatArray,
    start: int,
    end: int,
    mean_step: float,
    cursor: int,
    live: bool,
    prior: float,
    absorbed: IntArray,
    weight: FloatArray,
    mass: FloatArray,
    mean: FloatArray,
    pull: FloatArray,
    scatter: FloatArray,
    precision: FloatArray,
) -> tuple[int, bool]:
    """The shadow goes on, becomes live at the present; else live absorbs the newest waiting one."""
    columns = mean.shape[2]
    x, work, share = np.empty(columns), np.empty(columns), np.empty(COMPONENTS)
    if cursor < 0:
        cursor = int(mean_step)
        _copy(VERIFIED, SHADOW, absorbed, weight, mass, mean, pull, scatter, precision)
        absorbed[SHADOW] = 0
    place, left = _find(steps, start, end, cursor), FOLLOWED_PER_RECORD
    while place < end and left > 0:
        if waits[place]:
            left -= 1
            answers[place] = _follow(
                rows[place],
                prior,
                SHADOW,
                absorbed,
                weight,
                mass,
                mean,
                pull,
                scatter,
                precision,
                x,
                work,
                share,
            )
        place += 1
    while place < end and not waits[place]:
        place += 1
    if place == end:
        _copy(SHADOW, LIVE, absorbed, weight, mass, mean, pull, scatter, precision)
        return -1, True
    if live and waits[end - 1]:
        _follow(
            rows[end - 1],
            prior,
            LIVE,
            absorbed,
            weight,
            mass,
            mean,
            pull,
            scatter,
            precision,
            x,
            work,
            share,
        )
    return steps[place], live


@compiled
def _copy(
    source: int,
    target: int,
    absorbed: IntArray,
    weight: FloatArray,
    mass: FloatArray,
    mean: FloatArray,
    pull: FloatArray,
    scatter: FloatArray,
    precision: FloatArray,
) -> None:
    absorbed[target] = absorbed[source]
    mass[target] = mass[source]
    weight[target] = weight[source]
    mean[target] = mean[source]
    pull[target] = pull[source]
    scatter[target] = scatter[source]
    precision[target] = precision[source]


@compiled
def _score(
    completed: SingleArray,
    which: int,
    prior: float,
    weight: FloatArray,
    mean: FloatArray,
    pull: FloatArray,
) -> float:
    x, share = np.empty(mean.shape[2]), np.empty(COMPONENTS)
    _load(completed, x)
    logit = _posterior(x, prior, weight[which], mean[which], pull[which], share)
    return _sigmoid(min(max(logit, -LOGIT_MAX), LOGIT_MAX))


@compiled
def _contributions(
    completed: SingleArray,
    which: int,
    weight: FloatArray,
    mean: FloatArray,
    pull: FloatArray,
    moved: FloatArray,
) -> None:
    x, share = np.empty(len(moved)), np.empty(COMPONENTS)
    _load(completed, x)
    _posterior(x, 0.5, weight[which], mean[which], pull[which], share)
    if share[:PER_CLASS].sum() == 0.0 or share[PER_CLASS:].sum() == 0.0:
        return  # the prior alone answers while a class is unknown
    for k in range(COMPONENTS):
        for column in range(len(moved)):
            part = share[k] * pull[which, k, column] * (x[column] - 0.5 * mean[which, k, column])
            moved[column] += part if k >= PER_CLASS else -part
