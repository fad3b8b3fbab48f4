"""How far back predictions can be computed again: the audit horizon.

From the beginning of the journal if it is all there; else from the oldest whole snapshot behind
which nothing of the journal is missing. What is archived in files is not known here.
"""

from collections.abc import Iterable

from pipeline.errors import ClusterError, RefusalError, RequestError, StoreError
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import read_range, watermarks
from pipeline.ops.doctor.findings import Finding, fine, note, problem
from pipeline.snapshots.manifest import find_snapshots
from pipeline.snapshots.store import Store

CHECK = "audit horizon"
DAY_MS = 86_400_000
ADVICE = "set snapshots.archive_ms, and run dtgol journal archive more often than retention.ms"


def horizon_offset(low: int, snapshots: Iterable[int]) -> int | None:
    """The first journal offset whose prediction can be computed again; None if there is none.

    `low` is where the journal begins, `snapshots` the offsets of whole snapshots.
    """
    if low == 0:
        return 0
    return min((offset for offset in snapshots if offset >= low), default=None)


def judge_horizon(partition: int, offset: int | None, since_ms: int | None, now_ms: int) -> Finding:
    """One sentence for one partition; `since_ms` is the time of the record at `offset`."""
    where = f"partition {partition}"
    if offset is None:
        return problem(CHECK, f"{where}: no past prediction can be computed again", ADVICE)
    if offset == 0:
        return fine(CHECK, f"{where}: every prediction since the journal began")
    age = "" if since_ms is None else f", {(now_ms - since_ms) / DAY_MS:.1f} days back"
    return note(CHECK, f"{where}: predictions from journal offset {offset} on{age}", ADVICE)


def horizons(
    client: ClientSettings, journal: str, partitions: int, store: Store, now_ms: int
) -> Iterable[Finding]:
    """The finding of every partition; a store that does not answer is a note."""
    for number in range(partitions):
        try:
            low, high = watermarks(client, journal, number)
            whole = (
                [each.next_offset for each in find_snapshots(store.read(number)) if not each.damage]
                if low
                else []
            )
            offset = horizon_offset(low, whole)
            since = None
            if offset is not None and 0 < offset < high:
                first = next(iter(read_range(client, journal, number, offset, offset + 1)), None)
                since = None if first is None else first.timestamp_ms
        except (ClusterError, RequestError, RefusalError, StoreError) as error:
            yield note(CHECK, f"partition {number} could not be asked: {error}")
            continue
        yield judge_horizon(number, offset, since, now_ms)
