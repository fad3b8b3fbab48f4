"""What the newest snapshot of a partition shows: its age, held labels, kinds, how full it is.

A snapshot is some minutes old, which is near enough for all that is judged here. Of records nothing
is shown but the names of features and streams.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from pipeline.learning.fold import Fold
from pipeline.ops.doctor.findings import Finding, fine, note, problem
from topics.codec import read_label
from topics.labels import Label

HELD_MAX_MS = 3_600_000
"""A label may be some minutes ahead of its features; after an hour they went elsewhere."""
CONFLICTS_MAX = 0.05
LATE_MAX = 0.01
"""Of all labels; fewer may be a producer that was away."""
FULL_MAX = 0.9
AGE_FACTOR = 10
"""Snapshots that are so many times overdue are not late, they fail."""
FILL = "raise the limit, or send fewer of them: what is beyond it is refused"


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
    """Labels that wait for features: some are early, old ones are under a wrong key or id."""
    check = "held labels"
    held, oldest_ms = 0, now_ms
    for fold, _, _ in states:
        held += len(fold.streams.unopened)
        waits = fold.streams.unopened.oldest
        oldest_ms = oldest_ms if waits is None else min(oldest_ms, waits.ts)
        for stream in fold.streams.values():
            held += len(stream.early)
            for early in stream.early.values():
                label = read_label(early.value, early.key, now_ms)
                oldest_ms = min(oldest_ms, label.ts) if isinstance(label, Label) else oldest_ms
    text = (
        f"{held} labels wait for their features, the oldest for {(now_ms - oldest_ms) / 1000:.0f} s"
    )
    if now_ms - oldest_ms > HELD_MAX_MS:
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


def _fullness(states: list[PartitionState]) -> Iterator[Finding]:
    """What is bounded, against its bound; the fullest of each."""
    fullest: dict[str, tuple[float, str]] = {}
    for fold, _, _ in states:
        where = f"partition {fold.ref.partition}"
        shares = [
            ("streams", len(fold.streams), fold.config.streams_max, where),
            ("bytes of learners", fold.streams.state_bytes, fold.config.state_bytes_max, where),
            ("bytes of early labels", fold.streams.early_bytes, fold.config.early_bytes_max, where),
        ]
        for name, stream in fold.streams.items():
            learner, place = stream.learner, f"{where}, stream {name}"
            config = learner.config
            shares += [
                ("columns", learner.columns.width, config.copula.max_columns, place),
                ("instances without a label", learner.pending, config.delay.pending_max, place),
                ("early labels", learner.delay.early_labels, config.delay.early_max, place),
            ]
        for what, used, most, place in shares:
            share = used / max(1, most)
            text = f"{used} of {most} {what} ({place})"
            fullest[what] = max(fullest.get(what, (-1.0, "")), (share, text))
    full = [text for share, text in fullest.values() if share > FULL_MAX]
    for text in full:
        yield problem("bounds", text, FILL)
    if not full:
        yield fine("bounds", "; ".join(text for _, text in fullest.values()))
