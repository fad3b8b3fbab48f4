"""How far each source topic is folded: the rule by which a source record is applied once.

A source record names the one before it (`prev`). At or below the mark of its source it is a
duplicate; if its `prev` is beyond the mark the chain is broken: something before it is missing.
Neither is applied; what is missing comes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtgol_core.state import require_int, require_str
from topics.journal import NO_OFFSET, Source


class SourceMarks:
    """The last applied offset of each source, by topic and topic id.

    `forgiven` is None until a gap is accepted; from then on it holds the sources that have broken
    their chain since, which each may do once.
    """

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, str], int] = {}
        self.forgiven: set[tuple[str, str]] | None = None

    def admit(self, source: Source) -> str | None:
        """Move the mark of a source to this record; else why it is not applied."""
        at = (source.topic, source.topic_id)
        mark = self.offsets.get(at, NO_OFFSET)
        if source.offset <= mark:
            return "duplicate"
        if source.prev > mark and (self.forgiven is None or at in self.forgiven):
            return "broken"
        if self.forgiven is not None:
            self.forgiven.add(at)
        self.offsets[at] = source.offset
        return None

    def accept_gap(self) -> None:
        """Let each source break its chain once more."""
        self.forgiven = set()

    def last(self, topic: str, topic_id: str) -> int | None:
        """The last record of a source that was applied; None if any record may come next."""
        at = (topic, topic_id)
        if self.forgiven is not None and at not in self.forgiven:
            return None
        return self.offsets.get(at, NO_OFFSET)

    def state(self) -> dict[str, Any]:
        """The marks as plain JSON."""
        forgiven = None if self.forgiven is None else [list(at) for at in sorted(self.forgiven)]
        return {
            "marks": [[*source, mark] for source, mark in sorted(self.offsets.items())],
            "forgiven": forgiven,
        }

    @staticmethod
    def restore(state: Mapping[str, Any]) -> SourceMarks:
        """The marks that `state` described."""
        marks = SourceMarks()
        marks.offsets = {
            (require_str(name), require_str(id)): require_int(mark)
            for name, id, mark in state["marks"]
        }
        if state["forgiven"] is not None:
            marks.forgiven = {
                (require_str(name), require_str(id)) for name, id in state["forgiven"]
            }
        return marks
