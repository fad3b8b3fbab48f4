"""The fast learner with all experts against the plain one, step by step, within 1e-9.

All stages, experts and the combination with its second answers, on the nasty streams; the plain
one was written from docs/learner.md alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from dtgol_core.columns import EncodedRecord
from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.types import FeatureValues, Forecast, Rejection, Vectors
from dtgol_core.types import Instance as Row
from tests.support.plain import Instance
from tests.support.plain_experts import close
from tests.support.plain_whole import PlainWhole
from tests.support.records import (
    BUILDERS,
    Event,
    FeatureEvent,
    LabelEvent,
    LabelHabits,
    events_of,
    labels_of,
    nasty_events,
)

SMALL: Mapping[str, Any] = {"copula": {"window": 20}, "graph": {"unverified": 12, "verified": 8}}

HABITS: Mapping[str, LabelHabits] = {
    "nasty": LabelHabits(),
    "sluggish": LabelHabits(delay_max=35, early=0.2, late=0.2, never=0.3, again=0.1),
    "hasty": LabelHabits(delay_max=2, early=0.4, late=0, never=0, repeated=0.4, corrected=0.4),
}

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "release by step, last counts": {
        "delay": {"release": "step", "steps": 15, "corrected": "last"}
    },
    "expiry": {"delay": {"expire_ms": 9_000, "expire_steps": 12}},
    "small bounds": {
        "delay": {"early_max": 2, "early_steps": 3, "settled_max": 4, "pending_max": 6}
    },
    "without copula": {"ablate": {"copula": True}},
    "without correlation": {"ablate": {"marginals": True}},
    "without soft labels": {"ablate": {"softlabels": True}},
    "one track, without risk": {"ablate": {"dual_track": True, "risk": True}},
    "light": {"preset": "light"},
    "naive alone": {"experts": ["naive"]},
    "another order": {"experts": ["tracker", "recent", "naive", "linear_fast", "forest"]},
    "linear leads": {"experts": ["linear_fast", "linear", "paper", "naive"]},
    "paper leads": {"experts": ["naive", "recent", "paper"]},
    "none leads": {"experts": ["naive", "recent", "tracker", "linear_fast"]},
    "forest decides": {"combination": {"decides": "forest"}},
}  # fmt: skip


class Encoding(Learner):
    """A learner that shows the vectors of the last record, those of peeks and repeats too."""

    last: ClassVar[Vectors]

    def _encode(self, record: EncodedRecord, instance: Row) -> None:
        super()._encode(record, instance)
        Encoding.last = instance.vectors


def same_answer(fast: Forecast | Rejection, plain: Forecast | Rejection, at: str) -> None:
    if isinstance(fast, Rejection) or isinstance(plain, Rejection):
        assert isinstance(fast, Rejection), at
        assert isinstance(plain, Rejection), at
        assert fast.reason == plain.reason, at
        return
    assert list(fast.experts) == list(plain.experts), at
    for name, answer in fast.experts.items():
        close(answer, plain.experts[name], f"{at}: p and weight of {name}")
    assert list(fast.guard) == list(plain.guard), at
    close([*fast.guard.values()], [*plain.guard.values()], f"{at}: guard")
    numbers = [each.name for each in fields(Forecast) if each.type is float]
    for number in numbers:
        close(getattr(fast, number), getattr(plain, number), f"{at}: {number}")
    # Sets have a plain implementation of their own: between equal p the last bit decides.
    blank: dict[str, Any] = {
        "experts": {},
        "guard": {},
        "set": (),
        **dict.fromkeys(numbers, 0.0),
    }
    assert replace(fast, **blank) == replace(plain, **blank), at


class Counting(PlainWhole):
    """The plain learner, with the number of records that left after second answers began."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.learnt_second = self.forgotten_second = self.forgotten_first = 0

    def learn_from(self, instance: Instance) -> None:
        self.learnt_second += self.arrivals[instance.step].second is not None
        super().learn_from(instance)

    def leave(self, instance: Instance, setting: str) -> None:
        if self.second_began is not None and instance.step < self.second_began:
            second = self.arrivals[instance.step].second is not None
            self.forgotten_second += second
            self.forgotten_first += not second
        super().leave(instance, setting)


def compare(config: Config, events: Sequence[Event]) -> Counting:
    """Feed both learners and compare all answers; the plain one."""
    fast, plain = Encoding(config), Counting(config)
    for place, event in enumerate(events):
        at = f"event {place}, step {plain.step + 1}"
        if isinstance(event, LabelEvent):
            receipt = fast.learn(event.id, event.y, event.event_time_ms)
            assert receipt == plain.learn(event.id, event.y, event.event_time_ms), at
            continue
        assert isinstance(event, FeatureEvent)
        if place % 11 == 5:
            peeked = fast.peek(event.x)
            plain.given = None if isinstance(peeked, Rejection) else Encoding.last.latent
            same_answer(peeked, plain.peek(event.x), f"peek at {at}")
        ours = fast.observe(event.id, event.x, event.event_time_ms)
        plain.given = None if isinstance(ours, Rejection) else Encoding.last.latent
        theirs = plain.observe(event.id, event.x, event.event_time_ms)
        same_answer(ours, theirs, at)
        if isinstance(ours, Forecast) and not ours.repeat:
            spaces, scores = Encoding.last
            close(spaces, plain.vectors.spaces, f"{at}: spaces")
            close(scores, plain.vectors.scores[: len(scores)], f"{at}: scores")
    return plain


@pytest.mark.parametrize("builder", BUILDERS)
def test_whole_equals_plain_on_every_stream(builder: str) -> None:
    place = list(BUILDERS).index(builder)
    habits = list(HABITS.values())[place % 3]
    settings = {**SMALL, "delay": {"corrected": "last" if place % 2 else "first"}}
    assert (
        compare(Config.read(settings), nasty_events(builder, 1 + place, 50, habits)).labels_learnt
        > 10
    )


@pytest.mark.parametrize("settings", SETTINGS)
def test_whole_equals_plain_under_every_setting(settings: str) -> None:
    place = list(SETTINGS).index(settings)
    builder = ("mixed", "half missing", "coming and going", "empty rows")[place % 4]
    config = Config.read({**SMALL, **SETTINGS[settings]})
    assert compare(config, nasty_events(builder, 20 + place, 60)).labels_learnt > 3


def test_whole_equals_plain_on_a_longer_stream() -> None:
    habits = LabelHabits(delay_max=60)
    events = nasty_events("half missing", 4, 300, habits)
    assert (
        compare(Config.read({**SMALL, "delay": {"corrected": "last"}}), events).labels_learnt > 200
    )


def test_whole_equals_plain_with_one_class_only() -> None:
    records = BUILDERS["mixed"](5, 80)
    assert compare(Config.read(SMALL), events_of(records, [1] * 80, 5)).labels_learnt > 50


def wide_records(rows: int) -> list[FeatureValues]:
    """70 features, half of them missing and the last eight only later."""
    rng = np.random.default_rng(6)
    return [
        {
            f"x{j}": float(rng.normal())
            for j in range(62 if i < rows // 3 else 70)
            if rng.random() < 0.5
        }
        for i in range(rows)
    ]


def test_whole_equals_plain_beyond_64_columns() -> None:
    """Regressions change from the full covariance to blocks on the way."""
    records = wide_records(60)
    events = events_of(records, labels_of(records, 6), 6, LabelHabits(delay_max=5))
    assert compare(Config.read(SMALL), events).labels_learnt > 40


# --- second answers ------------------------------------------------------------------------------

LATE = LabelHabits(delay_max=200, never=0.05, early=0)
"""32 labels are learnt when about 90 records wait: second answers take six steps."""

SECOND: Mapping[str, Mapping[str, Any]] = {
    "all experts": {},
    "released by step": {"delay": {"release": "step", "steps": 70}},
    "the oldest go": {"delay": {"pending_max": 75}},
    "another order": {"experts": ["tracker", "recent", "naive", "linear_fast", "forest"]},
    "tracker and naive": {"experts": ["tracker", "naive"]},
    "paper leads": {"experts": ["naive", "recent", "paper"]},
}


@pytest.mark.parametrize("settings", SECOND)
def test_second_answers_equal_plain(settings: str) -> None:
    place = list(SECOND).index(settings)
    builder = ("half missing", "mixed", "coming and going")[place % 3]
    records = BUILDERS[builder](40 + place, 230)
    events = events_of(records, labels_of(records, 40 + place), 40 + place, LATE)
    plain = compare(Config.read({**SMALL, **SECOND[settings]}), events)
    assert plain.learnt_second >= 15
    assert (plain.forgotten_second > 0) == (settings == "the oldest go")


def test_second_answers_equal_plain_when_records_are_forgotten_in_between() -> None:
    """Times in any order; when two steps of second answers are done, one record's time lets half of
    those that wait expire, with and without a second answer."""
    rng = np.random.default_rng(50)
    records = BUILDERS["half missing"](50, 230)
    events: list[Event] = []
    for event in events_of(records, labels_of(records, 50), 50, replace(LATE, timed=False)):
        if isinstance(event, FeatureEvent):
            late = int(event.id[1:]) >= 136
            event = replace(event, event_time_ms=150 if late else int(rng.integers(100)))
        events.append(event)
    plain = compare(Config.read({**SMALL, "delay": {"expire_ms": 100}}), events)
    assert min(plain.learnt_second, plain.forgotten_second, plain.forgotten_first) >= 5


def test_second_answers_equal_plain_when_one_class_is_rare() -> None:
    """They begin with the fifth label of class 1, the 55th of all."""
    records = BUILDERS["mixed"](51, 230)
    labels = [int(i % 14 == 0) for i in range(230)]
    plain = compare(Config.read(SMALL), events_of(records, labels, 51, LATE))
    assert plain.second_began == 161
    assert plain.learnt_second >= 30
