"""The corpus of bad records: one file of bytes each, and how it must be refused."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topics.codec import read_features, read_label
from topics.headers import read_headers
from topics.journal import Source
from topics.reasons import Limits, Rejection

FOLDER = Path(__file__).parent.parent / "golden" / "bad"


@dataclass(frozen=True)
class BadRecord:
    """Bytes, the function that reads them, its other arguments, and the refusal expected."""

    name: str
    data: bytes
    reader: str
    reason: str
    detail: str
    given: dict[str, Any]

    def refused(self) -> object:
        """What the reading function returns."""
        if self.reader == "source":
            headers = [(name, value.encode()) for name, value in json.loads(self.data)]
            return read_headers(Source, headers)
        key = None if "key" in self.given else b"k"
        timestamp_ms = self.given.get("timestamp_ms", 1_767_225_600_000)
        limits = Limits(**self.given.get("limits", {}))
        read = read_label if self.reader == "label" else read_features
        answer: object = read(self.data, key, timestamp_ms, limits, self.given.get("streams"))
        return answer

    def as_expected(self) -> bool:
        """Whether it is refused with its reason and names the place."""
        answer = self.refused()
        if not isinstance(answer, Rejection):
            return False
        return answer.reason == self.reason and self.detail in answer.detail


def bad_records() -> list[BadRecord]:
    """The whole corpus, in its order."""
    corpus = []
    for row in json.loads((FOLDER / "index.json").read_text()):
        file, reader, reason = row.pop("file"), row.pop("read"), row.pop("reason")
        data = (FOLDER / file).read_bytes()
        detail = row.pop("detail", "")
        corpus.append(BadRecord(Path(file).stem, data, reader, reason, detail, row))
    return corpus
