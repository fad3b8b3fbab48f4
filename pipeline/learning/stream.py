"""The state of one stream: its learner, and the bytes of its early labels (`early`)."""

from __future__ import annotations

from collections.abc import Iterable

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.state import CORRUPTION_ERRORS, Snapshot, SnapshotError, require_int
from pipeline.learning.early import EarlyLabel, pack_labels, unpack_labels
from pipeline.learning.fold_config import Lineage

MEASURE_STEPS = 256
_OWN = "stream"


class StreamState:
    """One stream of one partition. `next_offset` is one past the last record that changed it.

    `touched_ms` is when its last record was appended to the journal. `model` names what answers:
    the software and the configuration.
    """

    def __init__(self, config: Config, lineage: Lineage, learner: Learner | None = None) -> None:
        self._lineage = lineage
        self.learner = Learner(config) if learner is None else learner
        self.early: dict[str, EarlyLabel] = {}
        self.early_bytes = 0
        self.next_offset = 0
        self.touched_ms = 0
        self.model = f"{lineage}-{config.digest()}"
        self._width = -1
        self.learner_bytes = 0
        """Memory of the learner when it was last measured."""

    def measure(self, anew: bool = False) -> int:
        """Measure the learner if its columns have grown, and now and then; how much it has grown.

        Not at every record: it costs about as much as one. `anew`: in any case.
        """
        due = anew or self.learner.columns.width != self._width
        if not due and self.learner.step % MEASURE_STEPS:
            return 0
        before = self.learner_bytes
        self._width, self.learner_bytes = self.learner.columns.width, self.learner.state_bytes
        return self.learner_bytes - before

    def keep_early(self, id: str, label: EarlyLabel) -> None:
        """Keep the bytes of a label that came before its features."""
        before = self.early.get(id)
        self.early[id] = label
        self.early_bytes += label.size - (before.size if before is not None else 0)

    def release_early(self, ids: Iterable[str]) -> list[EarlyLabel]:
        """Remove and return early labels that expired, or whose features came."""
        released = [self.early.pop(id) for id in ids if id in self.early]
        self.early_bytes -= sum(label.size for label in released)
        return released

    def drop_oldest_early(self) -> EarlyLabel:
        """Remove and return the label that was held longest."""
        (label,) = self.release_early([self.learner.drop_oldest_early()])
        return label

    def adopt(self, config: Config) -> None:
        """Go on with other settings, none of which shape the state."""
        self.learner = Learner.restore(config, self.learner.snapshot())
        self.model = f"{self._lineage}-{config.digest()}"

    def snapshot(self) -> Snapshot:
        """The learner's snapshot with the early labels and the offset added."""
        snapshot = self.learner.snapshot()
        snapshot.arrays.update(pack_labels(list(self.early), list(self.early.values())))
        snapshot.manifest[_OWN] = {
            "next_offset": self.next_offset,
            "touched_ms": self.touched_ms,
            "learner_bytes": self.learner_bytes,
        }
        return snapshot

    @staticmethod
    def restore(snapshot: Snapshot, lineage: Lineage) -> StreamState:
        """The stream that `snapshot` described, with the settings it was made with."""
        try:
            config = Config.read_whole(snapshot.manifest["config"])
            state = StreamState(config, lineage, Learner.restore(config, snapshot))
            own = snapshot.manifest[_OWN]
            state.next_offset = require_int(own["next_offset"])
            state.touched_ms = require_int(own["touched_ms"])
            state.learner_bytes = require_int(own["learner_bytes"])
            state.early = dict(unpack_labels(snapshot.arrays))
            state.early_bytes = sum(label.size for label in state.early.values())
        except CORRUPTION_ERRORS as error:
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"the snapshot of a stream is damaged: {error!r}") from error
        state._width = state.learner.columns.width
        return state
