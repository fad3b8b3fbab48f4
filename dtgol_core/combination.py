"""One probability from the answers of all experts: three stacks, and the guard over them and naive.

In: the experts' answers on arrival, and again when the label comes. Out: p, what each expert weighs
in it, and the guard's weights.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dtgol_core import bayes
from dtgol_core.compiled import compiled, fma, in_place
from dtgol_core.elementary import exp, log, sigmoid
from dtgol_core.losses import log_loss, log_odds
from dtgol_core.state import ENTRY_BYTES, SnapshotError, require_count, require_shape
from dtgol_core.types import FloatArray

CLIP = 4.0
"""Bound of an expert's log-odds, widened by the base rate's on their side."""
BIAS_VARIANCE, MEMORY = 0.001, 0.9999
TRACKER = "tracker"
LEADERS = ("forest", "linear", "linear_fast", "paper")
"""The first of these that is listed is what the stacks begin with."""
PRIORS = {"now": (0.0, 1.0, 0.1), "arrival": (0.0, 1.0, 0.03), "tracked": (0.7, 0.3, 0.03)}
"""Of each stack, before the first label: the tracker's weight, the leader's, the variance."""
GUARD = {"now": 0.25, "arrival": 0.15, "tracked": 0.10, "naive": 0.50}
"""The guard's weights before the first label. All numbers were chosen by docs/decisions/0018."""
GUARD_RATE = 0.25
SECOND_LABELS, SECOND_LABELS_EACH = 32, 5
"""Labels learnt, and of each class, when waiting instances are answered again."""
SECOND_PER_STEP = 16


class Combined(NamedTuple):
    """A forecast's p, and the weights in it of the experts and of the guard's members, in order."""

    p: float
    weights: list[float]
    guard: list[float]


class OneExpert:
    """The answer of one expert is the forecast.

    >>> OneExpert("paper", ["naive", "paper"]).combine(np.array([0.25, 0.75])).p
    0.75
    """

    kept: ClassVar[tuple[str, ...]] = ()
    members: ClassVar[tuple[str, ...]] = ()
    again: ClassVar[range] = range(0)

    def __init__(self, decides: str, experts: Sequence[str]) -> None:
        self._experts = tuple(experts)
        self._place = self._experts.index(decides)

    def combine(self, numbers: FloatArray) -> Combined:
        """The answer of the one."""
        return Combined(float(numbers[self._place]), self._weights(), [])

    def weights(self) -> tuple[dict[str, float], dict[str, float]]:
        """1 for the one, 0 for the others; there is no guard."""
        return dict(zip(self._experts, self._weights(), strict=True)), {}

    def _weights(self) -> list[float]:
        return [float(place == self._place) for place in range(len(self._experts))]

    def learn(self, step: int, numbers: FloatArray, now: Sequence[float], label: int) -> None:
        """Nothing is learnt."""

    def begin_second(self, step: int) -> None:
        """There is nobody to be judged by second answers."""

    def forget(self, step: int) -> None:
        """Nothing is kept of an instance."""

    def pulls(self, numbers: FloatArray) -> dict[str, float]:
        """How much the forecast's log-odds follow those of each expert."""
        return self.weights()[0]

    def snapshot(self) -> dict[str, Any]:
        """There is no state."""
        return {}


class Combination:
    """Bayesian stacks over the experts' log-odds, mixed with the naive expert by a guard.

    Parameters
    ----------
    experts
        Names of the experts in order. All but ``naive`` are inputs of stacks.

    Attributes
    ----------
    names
        Those of the stacks: ``now`` and ``arrival`` without the tracker, ``tracked`` with it. Those
        that would have no input, or lack the tracker, are left out.
    stacks : (stacks, 3 + weights, weights)
        The table of a `bayes.Regression` for each, over a constant and the log-odds of all experts
        but naive, in order. An input that a stack does not have is 0, and so is its prior.
    guard : (stacks + 1,)
        Logarithms of the weights of the stacks and of naive; the largest is 0.
    again
        Steps whose instances are still to be answered again; it stops at 0 before it is known.
    second
        The members' second answers, by step, for instances that wait for their label.

    Notes
    -----
    *Base rate*: ``b = (ones + 1)/(labels + 2)`` over the labels learnt. *Inputs*: log-odds clipped
    to ``[−4 + min(β, 0), 4 + max(β, 0)]``, β the log-odds of b on arrival: where ones are rare,
    answers may be as small as they have to be. *Stacks*: `Regression` over 1 and the inputs, prior
    as in `PRIORS`, bias variance .001, ρ = .9999; ``p_i = σ(score)``. *Guard*: ``p = Σ v_i p_i``
    with ``v_i ∝ π_i exp(−¼ Σ loss_i)`` over the answers that the members gave on arrival, π as in
    `GUARD`. p is exactly ½ before the first label.

    A label: ``now`` learns it from the answers given again now, before any expert has learnt the
    label, the other two from those given on arrival. What was answered on arrival is a whole delay
    old, and after a change it says little about who is right today; what is answered now is not
    what has to be answered on arrival; and the tracker, asked after the fact, would use what has
    been seen since. Then the guard, then the base rate.

    *Second answers*: with late labels the guard would first judge its members by what they answered
    when they knew next to nothing. Once 32 labels have been learnt, and 5 of each class, all that
    wait are answered again, 16 per step, and the guard takes these answers' losses in their place.

    Without delay p is at most 4 ln(1/π_i) nats worse than member i over any prefix. Under delay
    there is no such bound: members that take turns with a period of two delays can always be
    followed too late. Cost: O(experts²).

    The numbers of an instance begin with the answers of all experts, in order; then come the ones
    that are `kept` here.

    References
    ----------
    Wolpert (1992), Stacked generalization, Neural Networks; Vovk (1990), Aggregating strategies,
    COLT. That members are judged by answers given later is our own.

    >>> combination = Combination(["naive", "linear"])
    >>> numbers = np.array([0.5, 0.5, 0.0, 0.0, 0.0, 0.0])
    >>> combination.combine(numbers).p
    0.5
    >>> dict(zip(combination.kept, numbers[2:].tolist()))
    {'now': 0.5, 'arrival': 0.5, 'naive': 0.5, 'base_rate': 0.5}
    """

    def __init__(self, experts: Sequence[str]) -> None:
        self._experts = tuple(experts)
        self._naive = self._experts.index("naive")
        inputs = ["", *(name for name in self._experts if name != "naive")]
        self.names = [
            stack
            for stack in PRIORS
            if (TRACKER in inputs if stack == "tracked" else {*inputs} - {"", TRACKER})
        ]
        self.members = (*self.names, "naive")
        self.kept = (*self.members, "base_rate")
        """The answers of the members on arrival, and the base rate."""
        # Whether each stack has each input; 1 or 0, to multiply with.
        self._has = np.array(
            [[float(each != TRACKER or stack == "tracked") for each in inputs] for stack in PRIORS]
        )[[stack in self.names for stack in PRIORS]]
        self.stacks = np.zeros((len(self.names), bayes.COVARIANCE + len(inputs), len(inputs)))
        for place, stack in enumerate(self.names):
            self.stacks[place] = bayes.new_table(*_prior(stack, inputs, self._has[place]))
        self.guard = np.array([log(GUARD[name]) for name in self.members])
        self.guard -= self.guard.max()
        self.labels = 0
        self.ones = 0
        self.again = range(0)
        self.second: dict[int, tuple[float, ...]] = {}

    @property
    def state_bytes(self) -> int:
        """Memory of stacks, guard and second answers."""
        answers = len(self.second) * (2 * ENTRY_BYTES + 24 * len(self.members))
        return self.stacks.nbytes + self.guard.nbytes + answers

    @property
    def base_rate(self) -> float:
        """The share of ones among the labels learnt, as if there had been one of each before."""
        return (self.ones + 1) / (self.labels + 2)

    def combine(self, numbers: FloatArray) -> Combined:
        """The forecast's p from the answers of all experts; the members' wait with them."""
        experts = len(self._experts)
        weights = np.empty(experts + len(self.members))
        p = _combine(
            self.stacks, self._has, self.guard, self._naive, self.base_rate, numbers, weights
        )
        # A sum of weighted halves is not a half to the last bit.
        listed = weights.tolist()
        return Combined(p if self.labels else 0.5, listed[:experts], listed[experts:])

    def weights(self) -> tuple[dict[str, float], dict[str, float]]:
        """The weights of the experts and of the guard's members, by name.

        That of an expert is the sum over the stacks of their guard weight times its coefficient:
        by how much the log-odds move with the expert's, before they are moderated and mixed. That
        of ``naive`` is its guard weight. The guard's weights sum to 1.
        """
        return self._weighed(np.ones(len(self.names)))

    def _weighed(self, factors: FloatArray) -> tuple[dict[str, float], dict[str, float]]:
        """The weights, with the coefficients of each stack multiplied by a factor."""
        experts = len(self._experts)
        weights = np.empty(experts + len(self.members))
        _weigh(self.stacks, self.guard, self._naive, factors, weights)
        listed = weights.tolist()
        return (
            dict(zip(self._experts, listed[:experts], strict=True)),
            dict(zip(self.members, listed[experts:], strict=True)),
        )

    def pulls(self, numbers: FloatArray) -> dict[str, float]:
        """How much the forecast's log-odds follow those of each expert, to first order."""
        factors, x = np.empty(len(self.names)), np.empty(self.stacks.shape[2])
        for place, has in enumerate(self._has):
            _inputs(numbers, self._naive, self.base_rate, has, x)
            factors[place] = bayes.moderation(self.stacks[place], x)
        return self._weighed(factors)[0]

    def learn(self, step: int, numbers: FloatArray, now: Sequence[float], label: int) -> None:
        """Learn the label of the instance of a step.

        Parameters
        ----------
        numbers
            Those of the instance.
        now
            What all experts would have answered today, before they learnt the label.
        """
        second = self.second.pop(step, None)
        if second is not None:
            numbers, first = numbers.copy(), len(self._experts)
            numbers[first : first + len(second)] = second
        _learn(self.stacks, self._has, self.guard, self._naive, numbers, np.array(now), label)
        self.labels += 1
        self.ones += label

    def begin_second(self, step: int) -> None:
        """Let the instances before a step be answered again, if it is time, and never again."""
        if self.again.stop or self.labels < SECOND_LABELS:
            return
        if min(self.ones, self.labels - self.ones) >= SECOND_LABELS_EACH:
            self.again = range(1, step)

    def answer_again(self, step: int, answers: Sequence[float], numbers: FloatArray) -> None:
        """Judge the members by these answers when the label of a waiting instance comes."""
        experts, members = len(self._experts), len(self.members)
        given = np.zeros(experts + len(self.kept))
        given[:experts] = answers
        base_rate, weights = float(numbers[experts + members]), np.empty(experts + members)
        _combine(self.stacks, self._has, self.guard, self._naive, base_rate, given, weights)
        self.second[step] = tuple(given[experts : experts + members].tolist())

    def forget(self, step: int) -> None:
        """The instance of a step will never get a label."""
        self.second.pop(step, None)

    def snapshot(self) -> dict[str, Any]:
        """Stacks, guard, the counts of the base rate, and the second answers."""
        return {
            "stacks": self.stacks.copy(),
            "guard": self.guard.copy(),
            "labels": self.labels,
            "ones": self.ones,
            "again": [self.again.start, self.again.stop],
            "second_steps": np.array(list(self.second), dtype=np.int64),
            "second": np.array(list(self.second.values())).reshape(-1, len(self.members)),
        }

    @staticmethod
    def restore(experts: Sequence[str], snapshot: dict[str, Any]) -> "Combination":
        """The combination that `snapshot` described, of these experts."""
        combination = Combination(experts)
        for name in ("stacks", "guard"):
            require_shape(name, snapshot[name], getattr(combination, name).shape)
        stacks, priors = snapshot["stacks"].copy(), slice(bayes.PRIOR_MEAN, bayes.COVARIANCE)
        if (stacks[:, priors] != combination.stacks[:, priors]).any():
            raise SnapshotError("the snapshot is damaged: priors of the combination")
        for table in stacks:
            bayes.require_covariance(table)
        combination.stacks, combination.guard = stacks, snapshot["guard"].copy()
        combination.labels, combination.ones = map(
            require_count, (snapshot["labels"], snapshot["ones"])
        )
        if combination.ones > combination.labels or combination.guard.max() > 0.0:
            raise SnapshotError("the snapshot is damaged: counts or guard of the combination")
        combination.again = range(*map(require_count, snapshot["again"]))
        steps, second = snapshot["second_steps"].tolist(), snapshot["second"]
        require_shape("second", second, (len(steps), len(combination.members)))
        if not ((second >= 0.0) & (second <= 1.0)).all():
            raise SnapshotError("the snapshot is damaged: an answer that is no probability")
        combination.second = dict(zip(steps, map(tuple, second.tolist()), strict=True))
        return combination


def _prior(stack: str, inputs: Sequence[str], has: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of a stack's weights."""
    tracker, leading, variance = PRIORS[stack]
    means = dict.fromkeys(inputs, 0.0) | {TRACKER: tracker}
    leader = next((name for name in LEADERS if name in inputs), None)
    if leader is not None:
        means[leader] = leading
    variances = np.full(len(inputs), variance)
    variances[0] = BIAS_VARIANCE
    return has * np.array([means[name] for name in inputs]), has * variances


@in_place
def _inputs(
    answers: FloatArray, naive: int, base_rate: float, has: FloatArray, x: FloatArray
) -> None:
    """1, then the log-odds of the answers within ``[−clip + min(β, 0), clip + max(β, 0)]``, β those
    of the base rate."""
    base = log_odds(base_rate)
    low, high = -CLIP + min(base, 0.0), CLIP + max(base, 0.0)
    x[0] = 1.0
    for place in range(1, len(x)):
        answer = log_odds(answers[place - (place <= naive)])
        x[place] = has[place] * min(max(answer, low), high)


@compiled
def _combine(
    stacks: FloatArray,
    has: FloatArray,
    guard: FloatArray,
    naive: int,
    base_rate: float,
    numbers: FloatArray,
    weights: FloatArray,
) -> float:
    """Write the members' answers and the base rate behind those of the experts; p and weights."""
    members, experts = len(guard), len(weights) - len(guard)
    x, factors = np.empty(stacks.shape[2]), np.ones(len(stacks))
    for stack in range(len(stacks)):
        _inputs(numbers, naive, base_rate, has[stack], x)
        numbers[experts + stack] = sigmoid(bayes.score(stacks[stack], x))
    numbers[experts + members - 1] = numbers[naive]
    numbers[experts + members] = base_rate
    _weigh(stacks, guard, naive, factors, weights)
    p = 0.0
    for member in range(members):
        p = fma(weights[experts + member], numbers[experts + member], p)
    return p


@in_place
def _weigh(
    stacks: FloatArray, guard: FloatArray, naive: int, factors: FloatArray, weights: FloatArray
) -> None:
    """Weights of the experts, then of the guard's members, which sum to 1."""
    members, experts = len(guard), len(weights) - len(guard)
    total = 0.0
    for member in range(members):
        weights[experts + member] = exp(guard[member])
        total += weights[experts + member]
    for member in range(members):
        weights[experts + member] /= total
    for expert in range(experts):
        weights[expert] = 0.0
    for stack in range(len(stacks)):
        mean, factor = stacks[stack, bayes.MEAN], weights[experts + stack] * factors[stack]
        for place in range(1, len(mean)):
            expert = place - (place <= naive)
            weights[expert] = fma(factor, mean[place], weights[expert])
    weights[naive] = weights[experts + members - 1]


@compiled
def _learn(
    stacks: FloatArray,
    has: FloatArray,
    guard: FloatArray,
    naive: int,
    numbers: FloatArray,
    now: FloatArray,
    label: int,
) -> None:
    """The first stack learns from the answers of now, the others from those on arrival."""
    experts, members = len(now), len(guard)
    base_rate, x = numbers[experts + members], np.empty(stacks.shape[2])
    for stack in range(len(stacks)):
        learns_now = stack == 0 and len(stacks) > 1
        _inputs(now if learns_now else numbers, naive, base_rate, has[stack], x)
        bayes.learn(stacks[stack], MEMORY, x, label)
    largest = -math.inf
    for member in range(members):
        guard[member] -= GUARD_RATE * log_loss(numbers[experts + member], label)
        largest = max(largest, guard[member])
    for member in range(members):
        guard[member] -= largest
