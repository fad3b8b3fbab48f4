"""What the newest snapshots of the evaluator show: what it gave up, and what it failed on."""

from collections import Counter
from collections.abc import Iterator

from pipeline.errors import RefusalError, StoreError
from pipeline.ops.doctor.findings import Finding, fine, note, problem
from pipeline.snapshots.manifest import find_snapshots
from pipeline.snapshots.store import Store

LOST_MAX = 0.01
"""Share of labels that found no prediction any more; fewer may be labels of nothing."""
FULL_MAX = 0.9


def check_scoring(store: Store, partitions: int, pairs_max: int) -> Iterator[Finding]:
    """Every finding about the evaluator's memory; a store that does not answer is a note."""
    check = "scores"
    counts: Counter[str] = Counter()
    fullest, found = 0.0, 0
    try:
        for number in range(partitions):
            whole = (each for each in find_snapshots(store.read(number)) if each.damage is None)
            state = next((each.state for each in whole), None)
            if state is not None:
                found += 1
                counts.update(state.get("counts", {}))
                fullest = max(fullest, state.get("unscored", 0) / pairs_max)
    except (StoreError, RefusalError) as error:
        yield note(check, f"the evaluator's snapshots could not be read: {error}")
        return
    if not found:
        yield note(check, "none yet: too few records, or no evaluator has run")
        return
    yield _given_up(counts, fullest)
    failed = counts["predictions/failed"] + counts["labels/failed"]
    if failed:
        text = f"{failed} records were left out: the evaluator failed on each three times"
        yield problem(check, text, "this is a bug: its log has the stack trace")


def _given_up(counts: Counter[str], fullest: float) -> Finding:
    check, setting = "scores", "evaluator.pairs_bytes_max"
    given_up, kept = counts["predictions/unlabelled"], counts["predictions/kept"]
    text = (
        f"{counts['predictions/scored']} of {kept} predictions are scored, {given_up} were "
        f"forgotten without a label; those that wait for one take {fullest:.0%} of {setting}"
    )
    # Where labels never come nothing is lost; where they find no prediction any more, scores are.
    lost, labels = counts["labels/unmatched"], counts["labels/first"]
    if given_up and lost > LOST_MAX * labels:
        more = f"{text}; {lost} of {labels} labels found no prediction"
        return problem(check, more, f"raise {setting}: labels come later than it remembers")
    if given_up or fullest > FULL_MAX:
        return note(check, text, f"raise {setting} if their labels may still come")
    return fine(check, text)
