"""Stacks, guard and second answers: what they learn from, and that naive is never lost."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from dtgol_core import bayes
from dtgol_core.bayes import MEAN
from dtgol_core.combination import GUARD, Combination, OneExpert
from dtgol_core.elementary import sigmoid
from dtgol_core.losses import log_loss
from dtgol_core.types import FloatArray

EXPERTS = ("naive", "paper", "forest", "tracker")


def combine(combination: Combination, answers: Sequence[float]) -> tuple[float, FloatArray]:
    """p, and the numbers that wait with the instance."""
    numbers = np.zeros(len(answers) + len(combination.kept))
    numbers[: len(answers)] = answers
    return combination.combine(numbers).p, numbers


def stack(combination: Combination, name: str) -> FloatArray:
    """The mean of the weights of a stack."""
    mean: FloatArray = combination.stacks[combination.names.index(name)][MEAN]
    return mean


def run(labels: list[int], answers: list[list[float]]) -> Combination:
    """Answers in the order of `EXPERTS`; the same when the label comes."""
    combination = Combination(EXPERTS)
    for step, answer in enumerate(answers):
        _, numbers = combine(combination, answer)
        combination.learn(step, numbers, answer, labels[step])
    return combination


def test_before_the_first_label_p_is_a_half_to_the_last_bit_whatever_is_answered() -> None:
    assert combine(Combination(EXPERTS), [0.5, 0.5, 0.5, 0.5])[0] == 0.5
    assert combine(Combination(EXPERTS), [0.9, 0.9, 0.2, 0.7])[0] == 0.5


def test_an_expert_that_is_right_gains_weight_and_one_that_is_wrong_loses_it() -> None:
    labels = [step % 2 for step in range(400)]
    answers = [[0.5, 0.8 if y else 0.2, 0.2 if y else 0.8, 0.5] for y in labels]
    combination = run(labels, answers)
    weights, guard = combination.weights()
    assert weights["paper"] > 0.5 > weights["forest"]
    assert guard["naive"] < 1e-6
    assert combine(combination, [0.5, 0.9, 0.1, 0.5])[0] > 0.9


def test_naive_wins_where_it_alone_is_right() -> None:
    labels = [(step * step // 7) % 2 for step in range(300)]
    answers = [
        [0.9 if y else 0.1, 0.5, 0.9 if step % 3 else 0.1, 0.5] for step, y in enumerate(labels)
    ]
    combination = run(labels, answers)
    weights, guard = combination.weights()
    assert guard["naive"] > 0.99
    assert weights["naive"] == guard["naive"]
    assert combine(combination, [0.9, 0.5, 0.1, 0.5])[0] == pytest.approx(0.9, abs=0.01)


def test_without_delay_no_prefix_is_worse_than_naive_by_more_than_the_prior_says() -> None:
    """¼ of the losses count, and π of naive is ½: at most 4·ln 2 nats."""
    combination = Combination(EXPERTS)
    ours = naive = 0.0
    for step in range(500):
        y = (step * 7919 // 13) % 2
        answer = [0.6, 0.95 if step % 5 else 0.1, 0.05, 0.9]
        p, numbers = combine(combination, answer)
        ours += log_loss(p, y)
        naive += log_loss(0.6, y)
        assert ours - naive < 4 * math.log(2)
        combination.learn(step, numbers, answer, y)


def test_the_tracker_counts_in_its_own_stack_alone_and_by_its_answers_on_arrival() -> None:
    """Given again it would be right always; on arrival it knows nothing."""
    combination = Combination(EXPERTS)
    for step in range(200):
        y = step % 2
        _, numbers = combine(combination, [0.5] * 4)
        combination.learn(step, numbers, [0.5, 0.5, 0.5, float(y)], y)
    assert stack(combination, "now")[3] == stack(combination, "arrival")[3] == 0.0
    assert stack(combination, "tracked")[3] == pytest.approx(0.7)


def test_now_learns_from_what_is_answered_again() -> None:
    combination = Combination(["naive", "paper", "forest"])
    for step in range(200):
        y = step % 2
        _, numbers = combine(combination, [0.5, 0.5, 0.5])
        combination.learn(step, numbers, [0.5, 0.9 if y else 0.1, 0.5], y)
    assert stack(combination, "now")[1] > 0.5
    assert stack(combination, "arrival")[1] == 0.0


def test_where_ones_are_rare_answers_may_be_small() -> None:
    labels = [int(step % 100 == 0) for step in range(3000)]
    sure = [[0.01, 0.01, 0.002 if not y else 0.5, 0.01] for y in labels]
    combination = run(labels, sure)
    assert combination.base_rate == pytest.approx(0.01, abs=0.002)
    assert combine(combination, [0.01, 0.01, 0.0005, 0.01])[0] < 0.005


def test_pulls_are_the_weights_but_for_moderation() -> None:
    labels = [step % 2 for step in range(100)]
    combination = run(labels, [[0.5, 0.7 if y else 0.3, 0.6, 0.4] for y in labels])
    answers = [0.5, 0.7, 0.6, 0.4]
    weights, pulls = combination.weights()[0], combination.pulls(np.array(answers))
    assert pulls["naive"] == weights["naive"]
    for name in ("paper", "forest", "tracker"):
        assert 0.8 < pulls[name] / weights[name] < 1.0
    assert OneExpert("paper", EXPERTS).pulls(np.array(answers))["paper"] == 1.0


@pytest.mark.parametrize(
    ("experts", "members", "means"),
    [
        (["naive"], ["naive"], {}),
        (["tracker", "naive"], ["tracked", "naive"], {"tracked": [0.0, 0.7]}),
        (["naive", "recent"], ["now", "arrival", "naive"], {"now": [0.0, 0.0]}),
        (
            ["naive", "paper", "linear_fast"],
            ["now", "arrival", "naive"],
            {"now": [0.0, 0.0, 1.0], "arrival": [0.0, 0.0, 1.0]},
        ),
        (
            ["linear", "tracker", "naive", "forest"],
            ["now", "arrival", "tracked", "naive"],
            {"now": [0.0, 0.0, 0.0, 1.0], "tracked": [0.0, 0.0, 0.7, 0.3]},
        ),
    ],
)
def test_any_list_of_experts_has_the_stacks_that_it_can_have(
    experts: list[str], members: list[str], means: dict[str, list[float]]
) -> None:
    combination = Combination(experts)
    guard = combination.weights()[1]
    assert list(guard) == members
    shares = [GUARD[name] for name in members]
    assert list(guard.values()) == pytest.approx([each / sum(shares) for each in shares])
    for name, mean in means.items():
        assert stack(combination, name).tolist() == mean
    answers = [0.8] * len(experts)
    assert combine(combination, answers)[0] == 0.5
    combination.learn(1, combine(combination, answers)[1], answers, 1)
    assert 0.5 < combine(combination, answers)[0] < 0.9


def begun(zeros: int, ones: int) -> Combination:
    combination = Combination(EXPERTS)
    for label in [0] * zeros + [1] * ones:
        combination.learn(1, combine(combination, [0.5] * 4)[1], [0.5] * 4, label)
    combination.begin_second(100)
    return combination


def test_second_answers_begin_with_32_labels_and_5_of_each_class_and_only_once() -> None:
    assert begun(26, 5).again == begun(28, 4).again == begun(3, 40).again == range(0)
    combination = begun(27, 5)
    assert combination.again == range(1, 100)
    combination.again = range(100, 100)
    combination.begin_second(200)
    assert not combination.again


def test_the_guard_judges_by_the_second_answer_and_the_stacks_learn_from_the_first() -> None:
    """On arrival nobody knew anything; asked again naive is wrong and the stacks are right."""
    once, twice = begun(16, 16), begun(16, 16)
    _, numbers = combine(once, [0.5] * 4)
    twice.answer_again(7, [0.1, 0.9, 0.9, 0.9], numbers)
    assert len(twice.second) == 1
    for combination in (once, twice):
        combination.learn(7, numbers, [0.5] * 4, 1)
    assert not twice.second
    assert once.stacks.tolist() == twice.stacks.tolist()
    assert twice.weights()[1]["naive"] < once.weights()[1]["naive"]
    logit = math.log(9.0)
    start = begun(16, 16)
    tracked = bayes.score(start.stacks[2], np.array([1.0, logit, logit, logit]))
    ratio = (log_loss(0.1, 1) - log_loss(sigmoid(tracked), 1)) / 4
    before, after = start.guard, twice.guard
    assert after[2] - after[3] == pytest.approx(before[2] - before[3] + ratio)


def test_a_second_answer_goes_with_its_instance() -> None:
    combination = begun(16, 16)
    combination.answer_again(7, [0.1, 0.9, 0.9, 0.9], combine(combination, [0.5] * 4)[1])
    combination.forget(7)
    combination.forget(8)
    assert not combination.second


def test_answers_at_the_edge_of_probability_leave_every_number_finite() -> None:
    combination = Combination(EXPERTS)
    for step in range(200):
        answers = [float((step >> place) % 2) for place in range(4)]
        _, numbers = combine(combination, answers)
        combination.learn(step, numbers, answers, step % 3 % 2)
    weights, guard = combination.weights()
    assert all(map(math.isfinite, [*weights.values(), *guard.values()]))
    assert 0.0 <= combine(combination, [1.0, 0.0, 1.0, 0.0])[0] <= 1.0
