"""The state of a process in one sentence, for the first line of the live page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LAG_WARNING = 10_000
"""Records behind from which on the page warns: more than a burst, and visible in its age."""


def verdict(
    in_group: bool, reasons: Sequence[str], partitions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Level, sentence, and the reasons with what to do.

    Parameters
    ----------
    in_group
        Whether the process has joined its consumer group.
    reasons
        Why it is not ready, as `/readyz` gives them.
    partitions
        `Partition.health` of each partition.

    Returns
    -------
    dict
        `level` (healthy, starting, warning, wrong), `text`, `reasons`.
    """
    restoring = [each for each in partitions if not each.get("ready", True)]
    parked = [each for each in partitions if each.get("parked")]
    failed = [each for each in partitions if each.get("snapshot_failure")]
    behind = sum((each.get("lag") or 0) + (each.get("sources_lag") or 0) for each in partitions)
    ages = [age for each in partitions if (age := each.get("snapshot_age_s")) is not None]
    saved = f", last snapshot {min(ages):.0f} s ago" if ages else ""
    if not in_group:
        level, text = "starting", "It is joining its consumer group."
    elif parked:
        level = "wrong"
        text = f"{_partitions(parked)} parked in front of a record: decide about it."
    elif failed:
        level = "wrong"
        text = f"{_partitions(failed)} without a new snapshot: a restart would read more again."
    elif restoring and len(reasons) <= len(restoring):
        level, text = "starting", f"{_partitions(restoring)} restoring, of {len(partitions)}."
    elif reasons:
        level, text = "wrong", "It does not make progress."
    elif not partitions:
        level, text = "warning", "It has no partition: other processes of its group have them all."
    elif behind >= LAG_WARNING:
        level = "warning"
        text = f"It works, but is {behind:,} records behind: start more processes if this grows."
    else:
        level = "healthy"
        text = f"Healthy: {_partitions(partitions)} at work, {behind:,} records behind{saved}."
    return {"level": level, "text": text, "reasons": list(reasons)}


def _partitions(some: Sequence[Any]) -> str:
    return "1 partition" if len(some) == 1 else f"{len(some)} partitions"
