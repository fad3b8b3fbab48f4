"""The plain learner with every expert, and the plain combination.

Written from docs/learner.md by other hands than the core's, like `plain_experts`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from dtgol_core.config import Config
from dtgol_core.types import (
    ExpertAnswer,
    FeatureValues,
    FloatArray,
    Forecast,
    LabelOutcome,
    LabelReceipt,
    Vectors,
)
from tests.support.plain import (
    Instance,
    PlainLearner,
    Settled,
    cell,
    cross_entropy,
    entropy,
    padded,
    probability,
)
from tests.support.plain_experts import (
    MEMORIES,
    PlainExpert,
    PlainLinear,
    PlainRecent,
    PlainRegression,
    PlainScales,
    Seen,
    log_odds,
)
from tests.support.plain_forest import PlainForest
from tests.support.plain_tracker import PlainTracker

LEADERS = ("forest", "linear", "linear_fast", "paper")
PRIORS: Mapping[str, float] = {"now": 0.25, "arrival": 0.15, "tracked": 0.10, "naive": 0.50}

CORRECTIONS = (LabelOutcome.CORRECTED_RELABELLED, LabelOutcome.CORRECTION_TOO_LATE)


class PlainStack:
    """A regression over the log-odds of some experts; `inputs` by name with their prior means."""

    def __init__(self, inputs: Mapping[str, float], variance: float) -> None:
        self.inputs = list(inputs)
        mean = np.array([0.0, *inputs.values()])
        variances = np.array([0.001, *(variance for _ in inputs)])
        self.regression = PlainRegression(len(mean), lambda _: (mean, variances), 0.9999)

    def vector(self, answers: Mapping[str, float], beta: float) -> FloatArray:
        """x: 1 and the log-odds of the inputs, clipped by β."""
        low, high = -4 + min(beta, 0), 4 + max(beta, 0)
        return np.array([1.0, *(np.clip(log_odds(answers[n]), low, high) for n in self.inputs)])

    def learn(self, answers: Mapping[str, float], beta: float, y: int) -> None:
        """One label."""
        self.regression.drift()
        self.regression.learn(self.vector(answers, beta), y)


class PlainCombination:
    """Stacks over the experts' log-odds, and the guard over stacks and naive."""

    def __init__(self, experts: Sequence[str]) -> None:
        self.experts = experts
        self.labels = self.ones = 0
        inputs = [name for name in experts if name not in ("naive", "tracker")]
        leader = next((name for name in LEADERS if name in experts), None)
        self.stacks: dict[str, PlainStack] = {}
        if inputs:
            means = {name: float(name == leader) for name in inputs}
            self.stacks["now"] = PlainStack(means, 0.1)
            self.stacks["arrival"] = PlainStack(means, 0.03)
        if "tracker" in experts:
            means = {**dict.fromkeys(experts, 0.0), "tracker": 0.7}
            del means["naive"]
            if leader is not None:
                means[leader] = 0.3
            self.stacks["tracked"] = PlainStack(means, 0.03)
        self.losses = dict.fromkeys([*self.stacks, "naive"], 0.0)

    @property
    def beta(self) -> float:
        """The log-odds of the base rate."""
        return log_odds((self.ones + 1) / (self.labels + 2))

    def members(self, answers: Mapping[str, float], beta: float) -> dict[str, float]:
        """What every member of the guard answers, β as of the record's arrival."""
        p = {
            name: float(expit(stack.regression.score(stack.vector(answers, beta))))
            for name, stack in self.stacks.items()
        }
        return {**p, "naive": answers["naive"]}

    def guard(self) -> dict[str, float]:
        """v: the weights of the members."""
        least = min(self.losses.values())
        weights = {
            name: PRIORS[name] * math.exp((least - loss) / 4) for name, loss in self.losses.items()
        }
        return {name: weight / sum(weights.values()) for name, weight in weights.items()}

    def combine(self, answers: Mapping[str, float]) -> float:
        """p of one record."""
        if self.labels == 0:
            return 0.5
        members = self.members(answers, self.beta)
        return sum(v * members[name] for name, v in self.guard().items())

    def weights(self) -> dict[str, float]:
        """How far the forecast follows every expert."""
        v = self.guard()
        weights = {**dict.fromkeys(self.experts, 0.0), "naive": v["naive"]}
        for name, stack in self.stacks.items():
            for expert, m in zip(stack.inputs, stack.regression.mean[1:].tolist(), strict=True):
                weights[expert] += v[name] * m
        return weights

    def learn(self, arrival: "Arrival", now: Mapping[str, float], y: int) -> None:
        """A label, before any expert has learnt it."""
        for name, stack in self.stacks.items():
            stack.learn(now if name == "now" else arrival.answers, arrival.beta, y)
        for name, p in (arrival.second or arrival.members).items():
            self.losses[name] += cross_entropy(p, y)
        self.labels += 1
        self.ones += y


@dataclass
class Arrival:
    """What was known of a record when it came, by the experts and the combination."""

    vectors: Vectors
    kept: Mapping[str, Sequence[float]]
    answers: Mapping[str, float]
    beta: float
    members: Mapping[str, float]
    second: Mapping[str, float] | None = None
    """The members' second answers."""


class PlainWhole(PlainLearner):
    """The plain learner with all experts and the combination.

    `given` is the latent vector of the other learner for the record that comes next. It must be
    that of this learner within 1e-9, and is taken in its place: rounding to float32 and the splits
    of trees turn a difference in the last bits of a solved equation into a large one.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.given: FloatArray | None = None
        self.scales = PlainScales()
        self.experts: dict[str, PlainExpert] = {}
        for name in config.experts:
            if name in MEMORIES:
                self.experts[name] = PlainLinear(MEMORIES[name])
            elif name == "forest":
                self.experts[name] = PlainForest()
            elif name == "recent":
                self.experts[name] = PlainRecent()
            elif name == "tracker":
                self.experts[name] = PlainTracker()
        self.combination = PlainCombination(config.experts)
        self.arrivals: dict[int, Arrival] = {}
        self.second_began: int | None = None
        """The step at which the second answers began."""
        self.vectors = Vectors.of(np.zeros(0), np.zeros(0))

    def learn_settled(self, id: str, known: Settled, step: int, y: int) -> LabelReceipt:
        """A correction goes to the experts that keep the instance with its label."""
        receipt = super().learn_settled(id, known, step, y)
        if receipt.outcome not in CORRECTIONS:
            return receipt
        had = [expert.correct(step, y) for expert in self.experts.values()]
        if any(had):
            return LabelReceipt(LabelOutcome.CORRECTED_RELABELLED)
        kept = (
            "paper" in self.config.experts
        )  # the verified set, which the plain learner always has
        return receipt if kept else LabelReceipt(LabelOutcome.CORRECTION_TOO_LATE)

    def learn_from(self, instance: Instance) -> None:
        """The combination, then every expert."""
        assert instance.label is not None
        seen, now = self.seen(instance.step), self.answers_again(instance.step)
        self.combination.learn(self.arrivals.pop(instance.step), now, instance.label)
        for name, expert in self.experts.items():
            expert.learn(seen[name], instance.label)
        super().learn_from(instance)

    def seen(self, step: int) -> dict[str, Seen]:
        """A waiting record as the experts see it."""
        arrival = self.arrivals[step]
        vectors = arrival.vectors.padded(len(self.columns))
        return {name: Seen(step, vectors, arrival.kept[name]) for name in self.experts}

    def answers_again(self, step: int) -> dict[str, float]:
        """A waiting record as all experts answer it now."""
        vectors, seen = self.arrivals[step].vectors.padded(len(self.columns)), self.seen(step)
        return {
            **{name: expert.score(seen[name]) for name, expert in self.experts.items()},
            "naive": self.naive_answer(vectors.latent, vectors.original),
            "paper": self.paper_answer(vectors.latent, vectors.original),
        }

    def give_second_answers(self) -> None:
        """The 16 oldest waiting records not yet taken, from before the second answers began."""
        labels, ones = self.combination.labels, self.combination.ones
        if self.second_began is None and labels >= 32 and min(ones, labels - ones) >= 5:
            self.second_began = self.step
        if self.second_began is None:
            return
        due = [
            step
            for step, arrival in sorted(self.arrivals.items())
            if step < self.second_began and arrival.second is None
        ]
        for step in due[:16]:
            arrival = self.arrivals[step]
            arrival.second = self.combination.members(self.answers_again(step), arrival.beta)

    def naive_answer(self, latent: FloatArray, original: FloatArray) -> float:
        """`naive` by today's weights."""
        alpha = self.naive.latent_weight()
        z, o = self.naive.answers(latent, original)
        return alpha * z + (1 - alpha) * o

    def paper_answer(self, latent: FloatArray, original: FloatArray) -> float:
        """`paper` by today's persistent weights and the transient ones of the last record."""
        beta, alpha = self.config.ensemble.beta, self.paper.latent_weight()
        zp, op = self.paper.answers(latent, original)
        zt = probability(padded(self.latent_transient, len(latent) + 1), latent)
        ot = probability(padded(self.original_transient, len(latent) + 1), original)
        return alpha * (beta * zp + (1 - beta) * zt) + (1 - alpha) * (beta * op + (1 - beta) * ot)

    def leave(self, instance: Instance, setting: str) -> None:
        super().leave(instance, setting)
        if self.config.delay.expired != "drop":
            return
        del self.arrivals[instance.step]
        for expert in self.experts.values():
            expert.forget(instance.step)

    def admit(self, x: FeatureValues, values: Mapping[str, float | str]) -> None:
        """New columns feature by feature in the order of the record: the forest draws by number."""
        before = len(self.columns)
        for name, value in values.items():
            super().admit(x, {name: value})
        if len(self.columns) > before:
            for expert in self.experts.values():
                expert.grow(len(self.columns) - before)

    def map_record(self, values: dict[str, float | str]) -> None:
        """The record in every scale."""
        super().map_record(values)
        if self.given is not None:
            assert self.given.shape == self.latent.shape
            assert (np.abs(self.given - self.latent) <= 1e-9).all()
            self.latent = self.given
        row = [cell(values, column, self.columns) for column in self.columns]
        scores = self.scales.absorb(row, self.latent)
        self.vectors = Vectors.of(self.latent, self.original, *scores)

    def predict(self, features_observed: int) -> Forecast:
        """The answers of all experts, combined."""
        forecast = super().predict(features_observed)
        arrived = Seen(self.step, self.vectors)
        kept = {name: expert.observe(arrived) for name, expert in self.experts.items()}
        by_name = {name: answer.p for name, answer in forecast.experts.items()}
        for name, expert in self.experts.items():
            by_name[name] = expert.score(Seen(self.step, self.vectors, kept[name]))
        answers = {name: by_name[name] for name in self.config.experts}
        beta = self.combination.beta
        members = self.combination.members(answers, beta)
        self.arrivals[self.step] = Arrival(self.vectors, kept, answers, beta, members)
        self.give_second_answers()
        p, weights = self.combination.combine(answers), self.combination.weights()
        guard = self.combination.guard()
        decides = self.config.combination.decides
        if decides is not None:
            p, guard = answers[decides], {}
            weights = {name: float(name == decides) for name in answers}
        return replace(
            forecast,
            p=p,
            label=int(p > 0.5),
            uncertainty=entropy(p),
            experts={name: ExpertAnswer(q, weights[name]) for name, q in answers.items()},
            guard=guard,
        )
