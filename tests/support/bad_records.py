"""The corpus of bad records: one file of bytes each, and how it must be refused."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topics.codec import read_features, read_label
from topics.headers import read_headers
from topics.journal import Source
from topics.refusals import Limits, Rejection

FOLDER = Path(__file__).parent.parent / "golden" / "bad"


@dataclass(frozen=True)
class BadRecord:
    """Bytes, the door they come to, what is said beside them, and the refusal expected."""

    name: str
    data: bytes
    door: str
    reason: str
    detail: str
    said: dict[str, Any]

    def refused(self) -> object:
        """What the door answers."""
        if self.door == "source":
            headers = [(name, value.encode()) for name, value in json.loads(self.data)]
            return read_headers(Source, headers)
        key = None if "key" in self.said else b"k"
        timestamp_ms = self.said.get("timestamp_ms", 1_767_225_600_000)
        limits = Limits(**self.said.get("limits", {}))
        door = read_label if self.door == "label" else read_features
        answer: object = door(self.data, key, timestamp_ms, limits, self.said.get("streams"))
        return answer

    def as_expected(self) -> bool:
        """Whether the door refuses it with its reason and names the place."""
        answer = self.refused()
        if not isinstance(answer, Rejection):
            return False
        return answer.reason == self.reason and self.detail in answer.detail


def bad_records() -> list[BadRecord]:
    """The whole corpus, in its order."""
    corpus = []
    for row in json.loads((FOLDER / "index.json").read_text()):
        file, door, reason = row.pop("file"), row.pop("read"), row.pop("reason")
        data = (FOLDER / file).read_bytes()
        detail = row.pop("detail", "")
        corpus.append(BadRecord(Path(file).stem, data, door, reason, detail, row))
    return corpus
