"""One probability from the answers of all experts: three stacks, and the guard over them and naive.

In: the experts' answers on arrival, and again when the label comes. Out: p, what each expert weighs
in it, and the guard's weights.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dtgol_core.bayes import Stack
from dtgol_core.losses import log_loss
from dtgol_core.state import SnapshotError, flatten, require_int, require_shape, subsection
from dtgol_core.types import FloatArray, IntArray

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
    """A forecast's p, the weights in it by name, and the numbers that wait with the instance."""

    p: float
    weights: Mapping[str, float]
    guard: Mapping[str, float]
    kept: Sequence[float]


class OneExpert:
    """The answer of one expert is the forecast.

    >>> OneExpert("paper", ["naive", "paper"]).combine([0.25, 0.75]).p
    0.75
    """

    kept: ClassVar[tuple[str, ...]] = ()
    asked_again: ClassVar[tuple[str, ...]] = ()

    def __init__(self, decides: str, experts: Sequence[str]) -> None:
        self._experts = tuple(experts)
        self._place = self._experts.index(decides)

    def combine(self, answers: Sequence[float]) -> Combined:
        """The answer of the one."""
        return Combined(answers[self._place], *self.weights(), ())

    def weights(self) -> tuple[dict[str, float], dict[str, float]]:
        """1 for the one, 0 for the others; there is no guard."""
        weights = dict.fromkeys(self._experts, 0.0)
        weights[self._experts[self._place]] = 1.0
        return weights, {}

    def learn(
        self,
        step: int,
        arrival: Sequence[float],
        now: Mapping[str, float],
        kept: Sequence[float],
        label: int,
    ) -> None:
        """Nothing is learnt."""

    def forget(self, step: int) -> None:
        """Nothing is kept of an instance."""

    def pulls(self, answers: Sequence[float]) -> dict[str, float]:
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
    stacks
        By name: ``now`` and ``arrival`` without the tracker, ``tracked`` with it. Those that would
        have no input, or lack the tracker, are left out.
    guard
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

    References
    ----------
    Wolpert (1992), Stacked generalization, Neural Networks; Vovk (1990), Aggregating strategies,
    COLT. That members are judged by answers given later is our own.

    >>> combination = Combination(["naive", "linear"])
    >>> combination.combine([0.5, 0.5]).p
    0.5
    >>> list(combination.weights()[1])
    ['now', 'arrival', 'naive']
    """

    CACHES: ClassVar[tuple[str, ...]] = ("_listed",)

    def __init__(self, experts: Sequence[str]) -> None:
        self._experts = tuple(experts)
        self._naive = self._experts.index("naive")
        self._places = _places(self._experts)
        self._listed = {name: places.tolist() for name, places in self._places.items()}
        self.stacks = {name: self._new_stack(name) for name in self._places}
        self._members = (*self.stacks, "naive")
        self.kept = (*self._members, "base_rate")
        """The answers of the members on arrival, and the base rate."""
        self.guard = _normalised([math.log(GUARD[name]) for name in self._members])
        self.labels = 0
        self.ones = 0
        self.again = range(0)
        self.second: dict[int, tuple[float, ...]] = {}

    @property
    def asked_again(self) -> tuple[str, ...]:
        """The experts whose answers `learn` wants again: the inputs of ``now``."""
        return tuple(name for name in self._experts if name not in ("naive", TRACKER))

    def _new_stack(self, name: str) -> Stack:
        return Stack(*self._prior(name), memory=MEMORY, places=self._places[name], clip=CLIP)

    def _prior(self, stack: str) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a stack's weights."""
        tracker, leading, variance = PRIORS[stack]
        inputs = ["", *self._experts]
        means = dict.fromkeys(inputs, 0.0) | {TRACKER: tracker}
        leader = next((name for name in LEADERS if name in self._experts), None)
        if leader is not None:
            means[leader] = leading
        mean = np.array([means[inputs[place]] for place in self._places[stack]])
        variances = np.full(len(mean), variance)
        variances[0] = BIAS_VARIANCE
        return mean, variances

    @property
    def base_rate(self) -> float:
        """The share of ones among the labels learnt, as if there had been one of each before."""
        return (self.ones + 1) / (self.labels + 2)

    def combine(self, answers: Sequence[float]) -> Combined:
        """The forecast's p from the answers of all experts, in order."""
        members = self._answers(answers, self.base_rate)
        weights, guard = self.weights()
        # A sum of weighted halves is not a half to the last bit.
        p = 0.5
        if self.labels:
            p = sum(v * answer for v, answer in zip(guard.values(), members, strict=True))
        return Combined(p, weights, guard, (*members, self.base_rate))

    def weights(self) -> tuple[dict[str, float], dict[str, float]]:
        """The weights of the experts and of the guard's members, by name.

        That of an expert is the sum over the stacks of their guard weight times its coefficient:
        by how much the log-odds move with the expert's, before they are moderated and mixed. That
        of ``naive`` is its guard weight. The guard's weights sum to 1.
        """
        return self._weighed(dict.fromkeys(self.stacks, 1.0))

    def _weighed(self, factors: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        """The weights, with the coefficients of each stack multiplied by a factor."""
        shares = [math.exp(each) for each in self.guard]
        total = sum(shares)
        guard = {name: each / total for name, each in zip(self._members, shares, strict=True)}
        weights = [0.0] * (len(self._experts) + 1)
        for name, stack in self.stacks.items():
            factor = guard[name] * factors[name]
            for place, coefficient in zip(self._listed[name], stack.mean.tolist(), strict=True):
                weights[place] += factor * coefficient
        weights[self._naive + 1] = guard["naive"]
        return dict(zip(self._experts, weights[1:], strict=True)), guard

    def pulls(self, answers: Sequence[float]) -> dict[str, float]:
        """How much the forecast's log-odds follow those of each expert, to first order."""
        given = np.array(answers)
        moderations = {
            name: stack.moderation(stack.inputs(given, self.base_rate))
            for name, stack in self.stacks.items()
        }
        return self._weighed(moderations)[0]

    def learn(
        self,
        step: int,
        arrival: Sequence[float],
        now: Mapping[str, float],
        kept: Sequence[float],
        label: int,
    ) -> None:
        """Learn the label of the instance of a step, before the experts do.

        Parameters
        ----------
        arrival
            The answers of all experts on arrival, in order.
        now
            What those `asked_again` answer today.
        kept
            What `combine` kept on arrival.
        """
        *members, base_rate = kept
        given, again = np.array(arrival), np.array([now.get(name, 0.5) for name in self._experts])
        for name, stack in self.stacks.items():
            stack.learn_answers(again if name == "now" else given, base_rate, label)
        judged = zip(self.guard, self.second.pop(step, members), strict=True)
        self.guard = _normalised([old - GUARD_RATE * log_loss(p, label) for old, p in judged])
        self.labels += 1
        self.ones += label

    def begin_second(self, step: int) -> None:
        """Let the instances before a step be answered again, if it is time, and never again."""
        fewer = min(self.ones, self.labels - self.ones)
        if self.labels >= SECOND_LABELS and fewer >= SECOND_LABELS_EACH and not self.again.stop:
            self.again = range(1, step)

    def answer_again(self, step: int, answers: Sequence[float], kept: Sequence[float]) -> None:
        """Judge the members by these answers when the label of a waiting instance comes."""
        self.second[step] = self._answers(answers, kept[-1])

    def forget(self, step: int) -> None:
        """The instance of a step will never get a label."""
        self.second.pop(step, None)

    def _answers(self, answers: Sequence[float], base_rate: float) -> tuple[float, ...]:
        """The members' answers, from those of all experts in order."""
        given = np.array(answers)
        members = [stack.answer(given, base_rate) for stack in self.stacks.values()]
        return (*members, answers[self._naive])

    def snapshot(self) -> dict[str, Any]:
        """Stacks, guard, the counts of the base rate, and the second answers."""
        members = len(self._members)
        return {
            **flatten({name: stack.snapshot() for name, stack in self.stacks.items()}),
            "guard": np.array(self.guard),
            "labels": self.labels,
            "ones": self.ones,
            "again": [self.again.start, self.again.stop],
            "second_steps": np.array(list(self.second), dtype=np.int64),
            "second": np.array(list(self.second.values())).reshape(-1, members),
        }

    @staticmethod
    def restore(experts: Sequence[str], snapshot: dict[str, Any]) -> "Combination":
        """The combination that `snapshot` described, of these experts."""
        combination = Combination(experts)
        for name, stack in combination.stacks.items():
            stack.fill(subsection(snapshot, name))
        members = len(combination._members)
        require_shape("guard", snapshot["guard"], (members,))
        combination.guard = snapshot["guard"].tolist()
        combination.labels, combination.ones = snapshot["labels"], snapshot["ones"]
        first, stop = map(require_int, snapshot["again"])
        combination.again = range(first, stop)
        steps, second = snapshot["second_steps"].tolist(), snapshot["second"]
        require_shape("second", second, (len(steps), members))
        if not ((second >= 0.0) & (second <= 1.0)).all():
            raise SnapshotError("the snapshot is damaged: an answer that is no probability")
        combination.second = dict(zip(steps, map(tuple, second.tolist()), strict=True))
        return combination


def _normalised(logarithms: list[float]) -> list[float]:
    """The same weights with the largest logarithm at 0, so that none overflows."""
    largest = max(logarithms)
    return [each - largest for each in logarithms]


def _places(experts: Sequence[str]) -> dict[str, IntArray]:
    """Of each stack: where its x is among a 1 and the log-odds of all experts."""
    every = {name: place for place, name in enumerate(experts, start=1) if name != "naive"}
    still = [place for name, place in every.items() if name != TRACKER]
    places = {"now": still, "arrival": still} if still else {}
    if TRACKER in every:
        places["tracked"] = list(every.values())
    return {name: np.array([0, *each]) for name, each in places.items()}
