"""A crash at any step, and going on: the same bits as never having stopped."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from dtgol_core.combination import Combination
from dtgol_core.config import Config
from dtgol_core.ids import id_hash
from dtgol_core.learner import Learner
from dtgol_core.pending import BLOCK_STEPS
from dtgol_core.state import Snapshot, encode
from dtgol_core.types import Forecast, Rejection
from tests.support.records import (
    BUILDERS,
    Answer,
    Event,
    FeatureEvent,
    LabelEvent,
    LabelHabits,
    nasty_events,
    play,
)
from tests.support.views import digest_of, naive_of, reborn

SMALL: Mapping[str, Any] = {
    "copula": {"window": 20},
    "graph": {"unverified": 12, "verified": 8},
}

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "arrival": {"delay": {"expire_steps": 25, "early_max": 4, "settled_max": 9}},
    "by step and time": {
        "delay": {
            "release": "step",
            "steps": 6,
            "expire_ms": 12_000,
            "corrected": "last",
            "pending_max": 15,
            "early_steps": 4,
        }
    },
    "one track": {"ablate": {"dual_track": True}},
    "without soft labels": {"ablate": {"softlabels": True}},
    "without copula": {"ablate": {"copula": True}},
    "paper": {"preset": "paper", "delay": {"steps": 5}},
    "declared": {
        "features": {
            "colour": {"kind": "nominal", "levels": ["blue", "grün"]},
            "real": {"low": -1.5, "high": 2.0},
            "grade": {"kind": "ordinal"},
        }
    },
}


def answer(learner: Learner, event: Event) -> Answer:
    """One event, with reasons asked for."""
    if isinstance(event, FeatureEvent):
        return learner.observe(event.id, event.x, event.event_time_ms, why=3)
    return learner.learn(event.id, event.y, event.event_time_ms)


def without_counts(learner: Learner) -> bytes:
    """All the bits of a state but the counters of what was refused or repeated."""
    snapshot = learner.snapshot()
    del snapshot.manifest["learner"]["counts"]
    return encode(snapshot)


CASES = sorted(
    {(builder, settings) for builder in BUILDERS for settings in ("arrival", "by step and time")}
    | {(builder, settings) for builder in ("mixed", "many levels") for settings in SETTINGS}
)


@pytest.mark.parametrize(("builder", "settings"), CASES)
def test_crash_before_every_event_changes_nothing(builder: str, settings: str) -> None:
    config = Config.read({**SMALL, **SETTINGS[settings]})
    steady, crashing = Learner(config), Learner(config)
    for place, event in enumerate(nasty_events(builder, 2, 35)):
        crashing = reborn(crashing)
        assert answer(crashing, event) == answer(steady, event), place
        assert digest_of(crashing) == digest_of(steady), place


@pytest.mark.parametrize("settings", ["arrival", "by step and time"])
def test_one_crash_at_any_event_changes_nothing_ever_after(settings: str) -> None:
    """From each event on, a restored learner runs to the end."""
    config = Config.read({**SMALL, **SETTINGS[settings]})
    events = nasty_events("half missing", 5, 45)
    steady = Learner(config)
    snapshots, answers = [], []
    for event in events:
        snapshots.append(encode(steady.snapshot()))
        answers.append(answer(steady, event))
    end = digest_of(steady)
    survivor = Learner(config)
    for place, event in enumerate(events):
        restored = reborn(survivor)
        assert encode(restored.snapshot()) == snapshots[place]
        assert [answer(restored, later) for later in events[place:]] == answers[place:], place
        assert digest_of(restored) == end, place
        answer(survivor, event)


def test_crash_around_full_blocks_changes_nothing() -> None:
    """Steps 1 to 600 lie in three blocks; crashes at each step around their edges."""
    config = Config.read({**SMALL, "delay": {"expire_steps": 400, "settled_max": 300}})
    events = nasty_events("mixed", 3, 600, LabelHabits(delay_max=120, never=0.3))
    steady, crashing = Learner(config), Learner(config)
    for event in events:
        if steady.step % BLOCK_STEPS in (0, 1, 2, BLOCK_STEPS - 2, BLOCK_STEPS - 1):
            crashing = reborn(crashing)
        assert answer(crashing, event) == answer(steady, event)
    assert digest_of(crashing) == digest_of(steady)
    assert steady.step == 600


@pytest.mark.parametrize("experts", [["naive", "linear"], ["naive", "linear", "tracker"]])
def test_crash_in_the_middle_of_second_answers_changes_nothing(experts: list[str]) -> None:
    """300 instances wait when the first 32 labels have come: 19 steps answer them again."""
    config = Config.read({**SMALL, "experts": experts, "delay": {"expire_steps": 340}})
    steady, crashing = Learner(config), Learner(config)
    combination, waiting = steady.combination, []
    assert isinstance(combination, Combination)
    for step in range(420):
        if step >= 300 and step % 50:
            label = LabelEvent(f"r{step - 300}", step // 2 % 2, None)
            assert answer(crashing, label) == answer(steady, label)
        if step >= 300:
            crashing = reborn(crashing)
        record = FeatureEvent(f"r{step}", {"x": math.sin(step), "y": step // 2 % 2}, None)
        assert answer(crashing, record) == answer(steady, record), step
        waiting.append(len(combination.second))
    assert digest_of(crashing) == digest_of(steady)
    assert max(waiting) > 250
    asked, _ = steady.delay.oldest(range(1, combination.again.stop), 1000)
    assert list(combination.second) == [each.step for each in asked]
    assert 101 in combination.second, "its label does not come"
    assert 51 not in combination.second, "it has expired"


@pytest.mark.parametrize("builder", BUILDERS)
def test_looking_changes_nothing(builder: str) -> None:
    config = Config.read({**SMALL, **SETTINGS["by step and time"]})
    learner = Learner(config)
    for event in nasty_events(builder, 4, 35):
        if isinstance(event, FeatureEvent):
            before = digest_of(learner)
            learner.peek(event.x, why=2)
            learner.peek({"never seen": 1.5, "nor this": "level"})
            learner.peek({"bad": float("nan")})
            assert digest_of(learner) == before
        answer(learner, event)


@pytest.mark.parametrize("builder", BUILDERS)
def test_observe_says_what_peek_said(builder: str) -> None:
    learner = Learner(Config.read(SMALL))
    for event in nasty_events(builder, 6, 35, LabelHabits(timed=False)):
        if not isinstance(event, FeatureEvent) or learner.delay.knows(event.id, id_hash(event.id)):
            answer(learner, event)
            continue
        looked, result = learner.peek(event.x, why=2), learner.observe(event.id, event.x, why=2)
        if isinstance(result, Rejection):
            assert looked == result
        else:
            assert isinstance(looked, Forecast)
            assert (looked.p, looked.naive, looked.step) == (result.p, result.naive, result.step)
            assert (looked.why, looked.unverified) == (result.why, result.unverified)


@pytest.mark.parametrize("builder", BUILDERS)
def test_repeated_and_refused_records_change_nothing_but_counts(builder: str) -> None:
    learner = Learner(Config.read({**SMALL, **SETTINGS["arrival"]}))
    repeats = 0
    for event in nasty_events(builder, 1, 40, LabelHabits(again=0.3)):
        before = without_counts(learner)
        result = answer(learner, event)
        if isinstance(result, Rejection) or (isinstance(result, Forecast) and result.repeat):
            repeats += 1
            assert without_counts(learner) == before
        elif isinstance(result, Forecast):
            assert without_counts(learner) != before
    assert repeats > 5


def undisturbed(builder: str, events: Sequence[Event]) -> Learner:
    learner = Learner(Config.read(SMALL))
    play(learner, events)
    return learner


@pytest.mark.parametrize("builder", ["mixed", "many levels", "empty rows"])
def test_snapshot_shares_nothing_with_the_learner(builder: str) -> None:
    events = nasty_events(builder, 1, 60)
    learner = undisturbed(builder, events[:40])
    snapshot = learner.snapshot()
    kept = encode(snapshot)
    play(learner, events[40:])
    assert encode(snapshot) == kept, "the learner wrote into its snapshot"
    end = digest_of(learner)
    spoil(learner.snapshot())
    assert digest_of(learner) == end, "a spoilt snapshot reached the learner"


@pytest.mark.parametrize("builder", ["mixed", "many levels"])
def test_restored_learner_shares_nothing_with_its_snapshot(builder: str) -> None:
    events = nasty_events(builder, 1, 60)
    learner = undisturbed(builder, events[:40])
    snapshot = learner.snapshot()
    kept = encode(snapshot)
    restored = Learner.restore(learner.config, snapshot)
    play(restored, events[40:])
    assert encode(snapshot) == kept, "the restored learner wrote into its snapshot"
    restored = Learner.restore(learner.config, snapshot)
    spoil(snapshot)
    assert encode(restored.snapshot()) == kept, "a spoilt snapshot reached the restored learner"


def spoil(snapshot: Snapshot) -> None:
    """Overwrite all that can be overwritten."""
    for array in snapshot.arrays.values():
        if array.flags.writeable:
            array.fill(1)
    _spoil_plain(snapshot.manifest)


def _spoil_plain(value: object) -> None:
    if isinstance(value, dict):
        for held in value.values():
            _spoil_plain(held)
        value.clear()
    elif isinstance(value, list):
        for held in value:
            _spoil_plain(held)
        value.clear()


def test_full_blocks_stay_as_they_are_in_later_snapshots() -> None:
    """A store that has a full block need not read it again, whatever happens to its instances."""
    config = Config.read({**SMALL, "delay": {"expire_steps": 700}})
    habits = LabelHabits(delay_max=200, never=0.3, late=0.2)
    full: dict[str, bytes] = {}
    met_again = 0
    learner = Learner(config)
    for place, event in enumerate(nasty_events("coming and going", 1, 1000, habits)):
        answer(learner, event)
        if place % 50:
            continue
        arrays = learner.snapshot().arrays
        for name, array in arrays.items():
            if not name.startswith("delay/block/"):
                continue
            number = int(name.split("/")[2])
            if (number + 1) * BLOCK_STEPS <= learner.step + 1:
                bits = repr((array.shape, array.dtype.str)).encode() + array.tobytes()
                met_again += name in full
                assert full.setdefault(name, bits) == bits, name
    assert met_again > 50


def test_equal_states_have_equal_digests_and_others_do_not() -> None:
    events = nasty_events("mixed", 1, 40)
    assert digest_of(undisturbed("mixed", events)) == digest_of(undisturbed("mixed", events))
    assert digest_of(undisturbed("mixed", events)) != digest_of(undisturbed("mixed", events[:-1]))
    learner = undisturbed("mixed", events)
    before = digest_of(learner)
    weights = naive_of(learner).latent.weights
    weights[0] = np.nextafter(weights[0], 1.0)
    assert digest_of(learner) != before


def test_settings_that_do_not_shape_the_state_may_change_in_flight() -> None:
    learner = undisturbed("mixed", nasty_events("mixed", 1, 60))
    changed = Config.read(
        {
            **SMALL,
            "tracks": {"rate": 0.2},
            "delay": {"pending_max": 3, "settled_max": 2, "early_max": 0, "expire_ms": 1000},
        }
    )
    restored = reborn(learner, changed)
    assert restored.pending == learner.pending > 3
    result = restored.observe("new", {"real": 0.5})
    assert isinstance(result, Forecast)
    assert restored.pending <= 3
    assert len(restored.delay.settled) == 2
    assert len(result.learnt) + len(result.expired) >= learner.pending - 2
