"""What may stand still in a worker or an evaluator, as signs for the watchdog.

Work is what is known to wait: in our queues, on its way, at the broker. No work: an idle stream, a
parked partition, a sequencer that waits for a learner that moves. Called from another thread: only
looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pipeline.agents.evaluator import Booth
from pipeline.agents.learner import Seat
from pipeline.agents.sequencer import Sequence
from pipeline.engine.faustapp import FAILED, end
from pipeline.outbox import Outbox
from pipeline.settings import Settings
from pipeline.watchdog import Ends, Sign, Vigil, Watchdog


def make_vigil(
    settings: Settings,
    client: Mapping[str, Any],
    signs: Callable[[Ends], Iterable[Sign]],
    places: Callable[[], Iterable[tuple[str, int]]],
) -> Vigil:
    """The watchdog of a process, with the patience that the settings give it."""
    worker = settings.worker
    dog = Watchdog(worker.stuck_ms / 1000, worker.give_up_ms / 1000)
    return Vigil(dog, client, signs, places, lambda why: end(FAILED, why))


def process_signs(assigned: bool, outbox: Outbox) -> Iterator[Sign]:
    """Signs of every process."""
    yield Sign("it is not in its group yet", not assigned, None)
    what = "records were sent and none is acknowledged"
    yield Sign(what, outbox.waiting > 0, outbox.delivered)


def post_signs(partition: int, seat: Seat, sequence: Sequence, ends: Ends) -> Iterator[Sign]:
    """Signs of one partition of a worker; one that is parked waits for an operator."""
    if seat.parking.offset is not None:
        return
    at = f"partition {partition}: "
    ready = seat.ready.is_set()
    restored = seat.parking.looked, seat.restored_records, seat.next_offset
    yield Sign(at + "the restore does not move", seat.restoring and not ready, restored)
    what = at + "journal records wait and none is learnt"
    yield Sign(what, ready and seat.behind(ends), seat.moved)
    what = at + "features or labels wait and none is copied"
    works = ready and not sequence.held_up and sequence.behind(ends)
    yield Sign(what, works, sequence.moved)


def booth_signs(partition: int, booth: Booth, ends: Ends) -> Iterator[Sign]:
    """Signs of one partition of an evaluator."""
    at = f"partition {partition}: "
    ready = booth.ready.is_set()
    yield Sign(
        at + "the restore does not move", booth.restoring and not ready, booth.restored_records
    )
    what = at + "predictions or labels wait and none is taken in"
    yield Sign(what, ready and booth.behind(ends), booth.moved)


def broken_chains(
    seat: Seat, sequence: Sequence, topics: Mapping[int, tuple[str, str]]
) -> list[str]:
    """Sources whose records are in the journal and were not applied: one before is missing."""
    fold = seat.fold
    if fold is None or seat.next_offset < sequence.journal_end:
        return []
    found = []
    for side, (topic, topic_id) in topics.items():
        mark, durable = fold.mark(topic, topic_id), sequence.durable(side)
        if mark is not None and durable is not None and durable > mark:
            found.append(f"{topic} stands at {mark}: the journal has lost what came after")
    return found
