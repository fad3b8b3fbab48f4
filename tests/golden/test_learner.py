"""Answers that must never change: numeric traces of the frozen preset, and old snapshots.

``traces/*.json`` hold settings, events and the probabilities of the *plain* learner; the streams
come from a seeded numpy Generator and are stored, so that no generator has to stay as it is.
``snapshots/v5.bin`` was written by format 5; ``v5.json`` has the answers that must follow from it.
Formats 1 to 4 were never released and are not read. Missing files are made, and files that exist
are never overwritten, by

    PYTHONPATH=. python -c "from tests.golden.test_learner import write; write()"
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.state import decode, encode
from dtgol_core.types import Forecast
from tests.support.plain import PlainLearner
from tests.support.records import (
    Event,
    FeatureEvent,
    LabelEvent,
    LabelHabits,
    Verbs,
    nasty_events,
)

HERE = Path(__file__).parent
TOLERANCE = 1e-12
SMALL = {"unverified": 12, "verified": 8}
TRACES: Mapping[str, tuple[Mapping[str, Any], str, int]] = {
    "paper_mixed": ({"delay": {"steps": 20}}, "mixed", 120),
    "paper_half_missing": ({"delay": {"steps": 5}, "graph": SMALL}, "half missing", 80),
    "paper_coming_and_going": ({"delay": {"steps": 10}, "graph": SMALL}, "coming and going", 80),
}
SNAPSHOT_SETTINGS = {
    "copula": {"window": 10},
    "graph": {"unverified": 6, "verified": 4},
    "delay": {"expire_steps": 40, "settled_max": 10, "early_max": 5},
    "features": {"colour": {"kind": "nominal", "levels": ["red", "blue"]}},
}


def answers_of(learner: Verbs, events: Sequence[Event]) -> list[list[float]]:
    """[p, naive] of every forecast."""
    answers = []
    for event in events:
        if isinstance(event, LabelEvent):
            learner.learn(event.id, event.y, event.event_time_ms)
            continue
        forecast = learner.observe(event.id, event.x, event.event_time_ms)
        assert isinstance(forecast, Forecast)
        answers.append([forecast.p, forecast.naive])
    return answers


def packed(events: Sequence[Event]) -> list[list[Any]]:
    return [
        [event.id, dict(event.x) if isinstance(event, FeatureEvent) else event.y,
         event.event_time_ms]
        for event in events
    ]  # fmt: skip


def unpacked(rows: Sequence[Sequence[Any]]) -> list[Event]:
    return [
        FeatureEvent(id, given, time) if isinstance(given, dict) else LabelEvent(id, given, time)
        for id, given, time in rows
    ]


def write() -> None:
    """Make the golden files that are missing."""
    for name, (settings, builder, rows) in TRACES.items():
        events = nasty_events(builder, 1, rows, LabelHabits(delay_max=15))
        settings = {"preset": "paper", **settings}
        answers = answers_of(PlainLearner(Config.read(settings)), events)
        trace = {"settings": settings, "events": packed(events), "answers": answers}
        _keep(HERE / "traces" / f"{name}.json", _text(trace))
    learner = Learner(Config.read(SNAPSHOT_SETTINGS))
    events = nasty_events("mixed", 3, 60)
    answers_of(learner, events[:70])
    blob = encode(learner.snapshot())
    after = {"events": packed(events[70:]), "answers": answers_of(learner, events[70:])}
    if _keep(HERE / "snapshots" / "v5.bin", blob):
        _keep(HERE / "snapshots" / "v5.json", _text(after))


def _keep(path: Path, content: bytes) -> bool:
    if path.exists():
        return False
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return True


def _text(content: Mapping[str, Any]) -> bytes:
    """One line for each event and each forecast."""
    parts = []
    for key, value in content.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in value)
            text = f"[\n{rows}\n]"
        parts.append(f"{json.dumps(key)}: {text}")
    return ("{" + ",\n".join(parts) + "}\n").encode()


def assert_equal(ours: list[list[float]], golden: list[list[float]]) -> None:
    assert len(ours) == len(golden)
    for place, (new, old) in enumerate(zip(ours, golden, strict=True)):
        assert abs(new[0] - old[0]) <= TOLERANCE, f"p of forecast {place}"
        assert abs(new[1] - old[1]) <= TOLERANCE, f"naive of forecast {place}"


@pytest.mark.parametrize("path", sorted((HERE / "traces").glob("*.json")), ids=lambda p: p.stem)
def test_the_paper_preset_answers_as_it_always_did(path: Path) -> None:
    trace = json.loads(path.read_bytes())
    assert trace["settings"]["preset"] == "paper"
    events = unpacked(trace["events"])
    assert_equal(answers_of(Learner(Config.read(trace["settings"])), events), trace["answers"])


def test_all_traces_are_there() -> None:
    assert {path.stem for path in (HERE / "traces").glob("*.json")} >= set(TRACES)
    answers = [
        json.loads(path.read_bytes())["answers"] for path in (HERE / "traces").glob("*.json")
    ]
    for trace in answers:
        assert sum(abs(p - naive) > 1e-6 for p, naive in trace) > len(trace) / 2


@pytest.mark.parametrize("path", sorted((HERE / "snapshots").glob("*.bin")), ids=lambda p: p.stem)
def test_an_old_snapshot_is_restored_for_ever(path: Path) -> None:
    snapshot = decode(path.read_bytes())
    learner = Learner.restore(Config.read(snapshot.manifest["config"]), snapshot)
    after = json.loads(path.with_suffix(".json").read_bytes())
    assert learner.step > 20
    assert learner.pending > 3
    assert_equal(answers_of(learner, unpacked(after["events"])), after["answers"])


def test_format_five_is_written_as_it_always_was() -> None:
    """What is restored from the golden blob is written back; settings may have been added."""
    old = decode((HERE / "snapshots" / "v5.bin").read_bytes())
    new = Learner.restore(Config.read(old.manifest["config"]), old).snapshot()
    for each in (old, new):
        del each.manifest["config"]
    assert encode(new) == encode(old)
