"""What is fuzzed: every function that reads bytes which we did not just make ourselves.

A target takes bytes. It may refuse them in the way that the function documents (a `Rejection`, a
`SnapshotError`, a `ConfigError`, a `RefusalError`); whatever else it raises is a find. What it
accepts must survive a round trip and be fit for use. Hangs and memory are the runner's matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from unittest.mock import patch

from dtgol_core.config import Config, ConfigError
from dtgol_core.learner import Learner
from dtgol_core.state import Snapshot, SnapshotError, decode, encode
from pipeline.errors import RefusalError
from pipeline.evaluation.pairing import BLOB, Bounds, Evaluation
from pipeline.kafka.reader import Watermarks
from pipeline.kafka.record import Record
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FoldConfig
from pipeline.snapshots import topic
from pipeline.snapshots.manifest import PREFIX
from pipeline.snapshots.repository import SnapshotRepository
from tests.fuzz.seeds import (
    BOUNDS,
    IDENTITY,
    SMALL,
    MemoryStore,
    evaluation_state,
    stored_objects,
)
from tests.support.journal import REF, START_MS, Journal, restore_fold
from topics.codec import (
    read_features,
    read_label,
    read_prediction,
    read_score,
    write_features,
    write_label,
    write_prediction,
    write_score,
)
from topics.dead_letters import DeadLetter
from topics.headers import Header, producer_headers, read_headers, record_bytes, write_headers
from topics.journal import ConfigChange, RecordKind, Source, read_control, write_control
from topics.reasons import Limits, Rejection
from topics.snapshots import Chunk

KEY = b"k"
RECORDS_MAX = 12
SAFE = Limits()


def features(data: bytes) -> None:
    read = read_features(data, KEY, START_MS)
    if not isinstance(read, Rejection):
        again = read_features(write_features(read), KEY, 0)
        assert again == type(read)(read.stream, read.id, read.x, read.ts, ()), "features"


def label(data: bytes) -> None:
    read = read_label(data, KEY, START_MS)
    if not isinstance(read, Rejection):
        again = read_label(write_label(read), KEY, 0)
        assert again == type(read)(read.stream, read.id, read.y, read.ts, ()), "label"


def prediction(data: bytes) -> None:
    read = read_prediction(data)
    if not isinstance(read, Rejection):
        assert read_prediction(write_prediction(read)) == read, "prediction"


def score(data: bytes) -> None:
    read = read_score(data)
    if not isinstance(read, Rejection):
        assert read_score(write_score(read)) == read, "score"


def headers(data: bytes) -> None:
    """Lines of ``name=value``; a line without ``=`` is a header without a value."""
    given = [_header(line) for line in data.split(b"\n")]
    producer_headers(given)
    record_bytes(None, None, given)
    for cls in (Source, Chunk, DeadLetter):
        read = read_headers(cls, given)
        if not isinstance(read, Rejection):
            assert read_headers(cls, write_headers(read)) == read, cls.__name__


def _header(line: bytes) -> Header:
    name, found, value = line.partition(b"=")
    return name.decode("utf-8", "replace"), value if found else None


def control(data: bytes) -> None:
    """The first byte chooses the kind, the rest is the value."""
    kind = (RecordKind.CONFIG, RecordKind.RESET, RecordKind.SKIP)[(data or b"\0")[0] % 3]
    read = read_control(data[1:], [("dtgol-kind", kind.encode())])
    if read is None or isinstance(read, Rejection):
        return
    assert read_control(*write_control(read)) == read, "control"
    if isinstance(read, ConfigChange):
        _rules(read.config)


def _rules(mapping: Mapping[str, Any]) -> None:
    try:
        rules = FoldConfig.read(mapping)
    except ConfigError:
        return
    assert FoldConfig.read(rules.as_mapping()) == rules, "rules"
    rules.digest()
    read_features(
        b'{"id":"a","x":{"f":"t","g":1}}', KEY, START_MS, rules.limits, rules.allowed_streams
    )
    for stream in ("default", *rules.streams):
        rules.shape_differs(stream, rules.config_for(stream))


def fold(data: bytes) -> None:
    """Lines are records of a journal, the first letter says which kind; none may stop the fold."""
    journal, folded = Journal(), Fold(REF)
    for line in data.split(b"\n")[:RECORDS_MAX]:
        folded.apply(_record(journal, line[:1], line[1:]))
    taken = folded.snapshot()
    again = restore_fold(taken.state, taken.changed)
    assert again.digest() == folded.digest(), "fold"


def _record(journal: Journal, kind: bytes, value: bytes) -> Any:
    if kind in (b"F", b"L"):
        return journal.copy("features" if kind == b"F" else "labels", value)
    if kind in (b"C", b"R", b"S"):
        named = {b"C": RecordKind.CONFIG, b"R": RecordKind.RESET, b"S": RecordKind.SKIP}[kind]
        return journal.append(None, value, [("dtgol-kind", named.encode())])
    return journal.append(b"k", value, [_header(value)])


def snapshot(data: bytes) -> None:
    """A blob, as it lies in a store."""
    try:
        taken = decode(data)
        _same(taken, decode(encode(taken)))
        learner = Learner.restore(SMALL, taken)
    except SnapshotError:
        return
    once = encode(learner.snapshot())
    assert encode(Learner.restore(SMALL, decode(once)).snapshot()) == once, "learner"


def _same(one: Snapshot, other: Snapshot) -> None:
    assert one.manifest == other.manifest, "manifest"
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in one.arrays.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in other.arrays.items()
    }, "arrays"


def manifest(data: bytes) -> None:
    """The newest manifest of a partition, under a name that has its right hash."""
    name = f"{PREFIX}{10**19:020d}.{hashlib.sha256(data).hexdigest()}"
    repository = SnapshotRepository(MemoryStore({**stored_objects(), name: data}), 0, IDENTITY)
    try:
        found = repository.load(restore_fold)
    except RefusalError:
        return
    assert found is not None, "the older snapshot is whole"
    repository.save(found.snapshot_changed(repository.stored))


def evaluation(data: bytes) -> None:
    """The evaluator's blob beside its state."""
    state, known = evaluation_state(), ("journal-id", 0, Bounds(*BOUNDS))
    try:
        restored = Evaluation.restore(*known, state, {BLOB: decode(data)})
        taken = restored.snapshot()
    except SnapshotError:
        return
    again = Evaluation.restore(*known, taken.state, taken.changed)
    assert again.snapshot().state == taken.state, "evaluation"


@cache
def _store() -> topic.TopicStore:
    return topic.TopicStore({"bootstrap.servers": ""}, "snapshots", "worker")


def chunks(data: bytes) -> None:
    """Records of the snapshots topic, each some lines of headers and then a line of value."""
    records = []
    for offset, text in enumerate(data.split(b"\n\n")[:RECORDS_MAX]):
        lines = text.split(b"\n")
        headers = [_header(line) for line in lines[:-1]]
        key = b"key" + bytes(str(headers), "utf-8", "replace")
        records.append(Record("snapshots", 0, offset, 0, key, lines[-1] or None, headers))
    with (
        patch.object(topic, "watermarks", lambda *_: Watermarks(0, len(records))),
        patch.object(topic, "read_range", lambda *_: iter(records)),
    ):
        try:
            found = _store().read(0)
        except RefusalError:
            return  # of a newer format
    for name, whole in found.items():
        assert isinstance(whole, bytes), name


def config(data: bytes) -> None:
    """The settings of a learner, as JSON."""
    read = read_control(b'{"hash":"","config":' + data + b"}", [("dtgol-kind", b"config")])
    if not isinstance(read, ConfigChange):
        return
    try:
        made = Config.read(read.config)
    except ConfigError:
        return
    assert Config.read(made.as_mapping()) == made, "config"
    made.digest()


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        features,
        label,
        prediction,
        score,
        headers,
        control,
        config,
        fold,
        snapshot,
        manifest,
        evaluation,
        chunks,
    )
}
