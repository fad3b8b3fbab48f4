"""Where the fuzzer begins: a good example for every target, and the corpora of bad ones."""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.state import VERSION, encode
from pipeline.evaluation.pairing import BLOB, Bounds, Evaluation
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FoldConfig
from pipeline.snapshots.manifest import manifest_names
from pipeline.snapshots.repository import SnapshotRepository
from tests.fuzz.mutation import HEAD, MAGIC
from tests.support.bad_records import FOLDER as BAD_RECORDS
from tests.support.journal import REF, Journal, fold_all
from tests.support.records import nasty_events, play
from topics.codec import read_label, read_prediction
from topics.labels import Label
from topics.predictions import Prediction

GOLDEN = Path(__file__).parent.parent / "golden"
FOUND = GOLDEN / "found"
"""What the fuzzer has found: one folder per target, one file of bytes per find."""
EXAMPLES = Path(__file__).parent.parent.parent / "topics" / "examples"
SMALL = Config.read({"copula": {"window": 8}, "graph": {"unverified": 6, "verified": 4}})
IDENTITY = {"cluster": "c", "topic journal": "journal-id"}
BOUNDS = (100, 50, 10, 4)


def seeds(target: str) -> list[bytes]:
    """Good and bad inputs to begin with, finds included."""
    made = _MADE[target]() if target in _MADE else [_example(target)]
    found = FOUND / target
    kept = sorted(found.iterdir()) if found.is_dir() else []
    return [*made, *(_of_today(path.read_bytes()) for path in kept)]


def _of_today(found: bytes) -> bytes:
    """A blob in today's format number: under an old one it would be refused for that alone."""
    magic, *_ = HEAD.unpack_from(found) if len(found) >= HEAD.size else (b"",)
    return found[:8] + struct.pack("<I", VERSION) + found[12:] if magic == MAGIC else found


def _example(name: str) -> bytes:
    return (EXAMPLES / f"{name}.json").read_bytes()


def _bad(reader: str) -> list[bytes]:
    rows = json.loads((BAD_RECORDS / "index.json").read_text())
    return [(BAD_RECORDS / row["file"]).read_bytes() for row in rows if row["read"] == reader]


def _headers() -> list[bytes]:
    listed = [json.loads(_example(f"{name}-headers")) for name in _HEADED]
    return ["\n".join(f"{key}={value}" for key, value in each.items()).encode() for each in listed]


_HEADED = ("journal", "snapshots", "dead-letters")


def _control() -> list[bytes]:
    rules = json.dumps({"hash": "0", "config": FoldConfig().as_mapping()}).encode()
    kinds = ((b"\0", "config"), (b"\1", "reset"), (b"\2", "skip"))
    return [b"\0" + rules, *(kind + _example(f"journal-{name}") for kind, name in kinds)]


def _fold() -> list[bytes]:
    rules = json.dumps({"hash": "0", "config": FoldConfig(learner=SMALL).as_mapping()}).encode()
    good = [
        b"C" + rules,
        *(b'F{"id":"%d","x":{"a":%d,"b":"x","c":0.5}}' % (n, n) for n in range(4)),
        *(b'L{"id":"%d","y":%d}' % (n, n % 2) for n in range(4)),
        b'R{"stream":"default","note":""}',
        b'S{"offset":3,"note":""}',
    ]
    return [b"\n".join(good)]


@cache
def _snapshot() -> bytes:
    learner = Learner(SMALL)
    play(learner, nasty_events("mixed", 1, 25))
    return encode(learner.snapshot())


@cache
def stored_objects() -> dict[str, bytes]:
    """A partition's store with one whole snapshot in it."""
    stored: dict[str, bytes] = {}
    journal = Journal()
    for number in range(6):
        journal.features(str(number), {"a": number, "b": "x"})
        journal.label(str(number), number % 2)
    fold, _ = fold_all(journal.records, Fold(REF, FoldConfig(learner=SMALL)))
    SnapshotRepository(MemoryStore(stored), 0, IDENTITY).save(fold.snapshot())
    return stored


class MemoryStore:
    """A snapshot store in memory."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self._objects = objects

    def read(self, partition: int) -> dict[str, bytes]:
        return dict(self._objects)

    def written_ms(self, partition: int, name: str) -> int | None:
        return None

    def write(self, partition: int, objects: Any) -> None:
        self._objects.update(objects)

    def remove(self, partition: int, names: Any) -> None:
        for name in names:
            self._objects.pop(name, None)

    def discard(self, partition: int, names: Any) -> None:
        self.remove(partition, names)


def _manifest() -> bytes:
    objects = stored_objects()
    (name,) = manifest_names(objects)
    return objects[name]


@cache
def _evaluated() -> tuple[dict[str, Any], bytes]:
    evaluation = Evaluation("journal-id", 0, Bounds(*BOUNDS))
    example = json.loads(_example("predictions"))
    for offset in range(8):
        at = {"journal": "journal-id", "partition": 0, "offset": offset}
        made = example | {"id": f"i{offset % 6}", "at": at, "step": offset + 1}
        prediction = read_prediction(json.dumps(made).encode())
        assert isinstance(prediction, Prediction)
        evaluation.predict(prediction)
        given = {"stream": prediction.stream, "id": f"i{offset}", "y": offset % 2}
        label = read_label(json.dumps(given).encode(), b"k", 1)
        assert isinstance(label, Label)
        evaluation.label(label, offset)
    taken = evaluation.snapshot()
    return taken.state, encode(taken.changed[BLOB])


def evaluation_state() -> dict[str, Any]:
    """The part of the evaluator's state that is in its manifest."""
    return json.loads(json.dumps(_evaluated()[0]))  # type: ignore[no-any-return]


def _chunks() -> list[bytes]:
    chunk = _headers()[1]
    return [chunk + b"\nvalue", chunk + b"\nvalue\n\n" + chunk + b"\n"]


_MADE: dict[str, Any] = {
    "features": lambda: [_example("features"), *_bad("features")],
    "label": lambda: [_example("labels"), *_bad("label")],
    "prediction": lambda: [_example("predictions")],
    "score": lambda: [_example("scores")],
    "headers": lambda: [*_headers()],
    "control": _control,
    "config": lambda: [json.dumps(SMALL.as_mapping()).encode()],
    "fold": _fold,
    "snapshot": lambda: [_snapshot()],
    "manifest": lambda: [_manifest()],
    "evaluation": lambda: [_evaluated()[1]],
    "chunks": _chunks,
}
