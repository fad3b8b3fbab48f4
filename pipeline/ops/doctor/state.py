"""What the newest snapshot of a partition shows: its age, held labels, kinds, how full it is.

A snapshot is some minutes old, which is near enough for all that is judged here. Of records nothing
is shown but the names of features and streams.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from pipeline.learning.fold import Fold
from pipeline.ops.doctor.findings import Finding, fine, note, problem

HELD_MAX_MS = 3_600_000
"""A label may be some minutes ahead of its features; after an hour they went elsewhere."""
CONFLICTS_MAX = 0.05
LATE_MAX = 0.01
"""Of all labels; fewer may be a producer that was away."""
FULL_MAX = 0.9
AGE_FACTOR = 10
"""Snapshots that are so many times overdue are not late, they fail."""

NO_FAULT = frozenset(
    {
        "delay.pending_bytes_max",
        "delay.pending_max",
        "delay.settled_max",
        "evaluator.pairs_bytes_max",
        "worker.queue_bytes_max",
    }
)
"""Bounds at which only the oldest goes, or what comes waits: a full one is no fault by itself.
Labels that come too late because of it are counted, and judged by their share; so is the lag."""


class PartitionState(NamedTuple):
    """The newest whole snapshot of a partition."""

    fold: Fold
    written_ms: int | None
    journal_end: int


def check_state(
    states: list[PartitionState], every_ms: int, every_records: int, now_ms: int
) -> Iterator[Finding]:
    """Every finding about these partitions."""
    if not states:
        yield note("snapshots", "none yet: too few records, or no worker has run")
        return
    yield from _ages(states, every_ms, every_records, now_ms)
    yield _held(states, now_ms)
    yield _late(states)
    yield _skew(states)
    yield from _conflicts(states)
    yield from _fullness(states)


def _ages(
    states: list[PartitionState], every_ms: int, every_records: int, now_ms: int
) -> Iterator[Finding]:
    check = "snapshot age"
    oldest = 0.0
    for fold, written_ms, end in states:
        age_ms = now_ms - written_ms if written_ms is not None else 0
        oldest = max(oldest, age_ms / 1000)
        behind = end - fold.next_offset
        if age_ms > AGE_FACTOR * every_ms and behind > 2 * every_records:
            text = f"partition {fold.ref.partition}: {age_ms / 1000:.0f} s, {behind} records ago"
            yield problem(check, text, "the worker cannot store them: /status says why")
            return
    yield fine(check, f"at most {oldest:.0f} s in {len(states)} partitions")


def _held(states: list[PartitionState], now_ms: int) -> Finding:
    """Labels that wait for features: some are early, old ones are under a wrong key or id.

    Their age is since they were appended to the journal: labels of a backfill are old by event
    time, and may have come a second ago.
    """
    check = "held labels"
    held = sum(len(fold.streams.unopened) for fold, _, _ in states)
    held += sum(len(stream.early) for fold, _, _ in states for stream in fold.streams.values())
    since = [fold.oldest_early_ms for fold, _, _ in states if fold.oldest_early_ms is not None]
    age_ms = max(0, now_ms - min(since, default=now_ms))
    text = f"{held} labels wait for their features, the oldest for {age_ms / 1000:.0f} s"
    if age_ms > HELD_MAX_MS:
        return problem(check, text, "send each label under the key, stream and id of its features")
    return note(check, text) if held else fine(check, "none")


def _late(states: list[PartitionState]) -> Finding:
    """Labels whose instance had expired, and the settings by which they had."""
    check, prefix = "late labels", "labels/late/"
    late: Counter[str] = Counter()
    learnt = 0
    for fold, _, _ in states:
        learnt += fold.counts["labels/learnt"]
        for name, count in fold.counts.items():
            if name.startswith(prefix):
                late[name.removeprefix(prefix)] += count
    if not late:
        return fine(check, "none")
    listed = ", ".join(f"{setting} {count}" for setting, count in late.most_common())
    text = f"{late.total()} labels came too late and {learnt} were learnt; by setting: {listed}"
    if late.total() <= LATE_MAX * (learnt + late.total()):
        return note(check, text)
    return problem(check, text, f"raise {late.most_common(1)[0][0]}, or send labels sooner")


def _skew(states: list[PartitionState]) -> Finding:
    """Labels that are stamped before their features: a clock that is slow."""
    check = "clocks of labels"
    count = sum(fold.counts["labels/stamped-before"] for fold, _, _ in states)
    learnt = sum(fold.counts["labels/learnt"] for fold, _, _ in states)
    if not count:
        return fine(check, "no label is stamped before its features")
    by_s = max(fold.label_skew_ms for fold, _, _ in states) / 1000
    text = f"{count} labels were stamped before their features, the newest by {by_s:.0f} s"
    if count <= LATE_MAX * learnt:
        return note(check, text)
    return problem(check, text, "set the clocks of who sends labels by NTP")


def _conflicts(states: list[PartitionState]) -> Iterator[Finding]:
    """Features of which many cells were missing because they were of another kind."""
    check, counted = "kinds of features", 0
    for fold, _, _ in states:
        for name, stream in fold.streams.items():
            steps = stream.learner.step
            for feature, known in stream.learner.columns.features.items():
                counted += known.conflicts
                if known.conflicts > max(1.0, CONFLICTS_MAX * steps):
                    text = f"{feature} of stream {name}: {known.conflicts} cells of another kind"
                    advice = f"run: dtgol journal retype --stream {name} --feature {feature} …"
                    yield problem(check, text, f"mend the producer, or {advice}")
    yield fine(check, f"{counted} cells of another kind than their feature, taken as missing")


class Share(NamedTuple):
    """How much of a bound is in use in one place, and what happens at it."""

    what: str
    used: int
    most: int
    place: str
    setting: str
    at_bound: str

    @property
    def ratio(self) -> float:
        return self.used / max(1, self.most)

    @property
    def text(self) -> str:
        return f"{self.used} of {self.most} {self.what} ({self.place})"


def _fullness(states: list[PartitionState]) -> Iterator[Finding]:
    """What is bounded, against its bound; the fullest of each."""
    fullest: dict[str, Share] = {}
    for fold, _, _ in states:
        for share in _shares(fold):
            known = fullest.get(share.setting)
            if known is None or share.ratio > known.ratio:
                fullest[share.setting] = share
    full = [share for share in fullest.values() if share.ratio > FULL_MAX]
    for share in full:
        judge = note if share.setting in NO_FAULT else problem
        yield judge("bounds", share.text, f"raise {share.setting}: at it {share.at_bound}")
    if not full:
        yield fine("bounds", "; ".join(share.text for share in fullest.values()))


def _shares(fold: Fold) -> Iterator[Share]:
    """Every bound of a partition and of its streams."""
    where, config, streams = f"partition {fold.ref.partition}", fold.config, fold.streams
    for what, used, most, setting, at_bound in (
        ("streams", len(streams), config.streams_max, "limits.streams_max",
         "further ones are refused"),
        ("bytes of learners", streams.state_bytes, config.state_bytes_max,
         "limits.state_bytes_max", "new streams and features are refused"),
        ("bytes of early labels", streams.early_bytes, config.early_bytes_max,
         "limits.early_bytes_max", "the oldest become dead letters"),
    ):  # fmt: skip
        yield Share(what, used, most, where, setting, at_bound)
    late = "the oldest expire, and their labels come too late"
    for name, stream in streams.items():
        learner, delay = stream.learner, stream.learner.delay
        bounds = learner.config.delay
        columns_max = learner.config.copula.max_columns
        for what, used, most, setting, at_bound in (
            ("columns", learner.columns.width, columns_max, "copula.max_columns",
             "records with further features are refused"),
            ("instances without a label", learner.pending, bounds.pending_max,
             "delay.pending_max", late),
            ("bytes of these instances", delay.pending_bytes, bounds.pending_bytes_max,
             "delay.pending_bytes_max", late),
            ("early labels", delay.early_labels, bounds.early_max, "delay.early_max",
             "the oldest become dead letters"),
            ("remembered ids", len(delay.settled), bounds.settled_max, "delay.settled_max",
             "the oldest are forgotten, and count as new if they come back"),
        ):  # fmt: skip
            place = f"{where}, stream {name}"
            yield Share(what, used, most, place, setting, at_bound)
