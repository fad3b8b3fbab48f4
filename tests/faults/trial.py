"""One trial: a load, faults at seeded moments, quiet, then the journal folded offline and compared.

How to add a fault. Write a test that takes the fixture `trials`, open a trial, and do the damage in
its block while the load goes on; everything else is the harness's:

    def test_a_worker_is_killed_in_steady_flow(trials: Trials) -> None:
        with trials.open(Plan("kill -9 in steady flow", workers=2)) as trial:
            for _ in range(4):
                trial.moment()                           # some records later, drawn from the seed
                trial.kill(trial.anyone())               # a real SIGKILL, counted
                trial.processes.start("worker")          # another takes its place
                trial.await_whole()                      # if the next fault wants all at work

Leaving the block ends the load, waits for quiet, ends the processes, checks everything, and adds a
row to the table for each role; `Row.check` asserts the zeros. Chance comes from `trial.chance` and
from nothing else. A fault that is no kill calls `trial.count()`; a fault after which predictions
are awaited (an outage) calls `trial.hit(partitions)` when it is over, for the seconds in the table.

- Other brokers: `trials.open(plan, broker=…)`; other settings: `Plan(settings={"section.key": …})`.
- An evaluator takes part, and is checked, with `Plan(evaluators=1)`.
- A process that ends by itself with exit code 1 is started again in the waits (`tend`), as a
  supervisor would; every such end is shown in the test's output. Any other code fails the trial.
- A worker that pauses at an exact point: `trial.processes.start("worker", at="manifest")`, then
  `member.await_reached()`; see tests/support/pause_points.py.
- To check more: `with trials.open(plan) as trial`, then `trial.folded` and `trial.rows` after it.

The seed decides what is sent, who is hit and after how many records; the machine decides the rest,
so a replayed seed (`--fault-seed`) hits the same way, not at the same microsecond.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pipeline.errors import FAILED
from pipeline.kafka.reader import Reader, committed_offsets
from tests.faults.checks import Found, Observed, Refolded, append_times, check_worker
from tests.faults.history import History
from tests.faults.load import Flow, Load
from tests.faults.processes import REACH_S, Member, Processes
from tests.faults.rows import Row
from tests.faults.scoring import check_evaluator
from tests.faults.stored_snapshots import StoredSnapshots, offset_of
from tests.support.stage import Stage
from tests.support.waiting import wait_until

QUIET_S = 240
SOURCES = ("features", "labels")
EVALUATED = ("predictions", "labels")


@dataclass(frozen=True)
class Plan:
    """What a trial is made of."""

    fault: str
    workers: int = 2
    evaluators: int = 0
    partitions: int = 4
    replication: int = 1
    store: str = "topic"
    flow: Flow = field(default_factory=Flow)
    config: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def roles(self) -> list[str]:
        """Whose work is checked."""
        return ["worker", "evaluator"] if self.evaluators else ["worker"]


class Trial:
    """A plan at work. Use it as a context manager; the rows are there when the block is left."""

    def __init__(self, stage: Stage, plan: Plan, seed: int) -> None:
        self.stage = stage
        self.plan = plan
        self.seed = seed
        self.chance = random.Random(seed)
        self.processes = Processes(stage)
        self.load = Load(stage, plan.flow, seed)
        self.faults = 0
        self.hits: dict[str, list[tuple[float, set[int]]]] = {role: [] for role in plan.roles}
        self.rows: list[Row] = []
        self.history = History()
        self.folded: dict[int, Refolded] = {}
        self.snapshots_lost = False
        """Whether the trial itself took them away: then not all that is committed is stored."""

    def __enter__(self) -> Trial:
        self.processes.__enter__()
        try:
            counts = {"worker": self.plan.workers, "evaluator": self.plan.evaluators}
            for role, count in counts.items():
                for _ in range(count):
                    self.processes.start(role)
            for role, count in counts.items():
                if count:
                    self.await_whole(role)
            self.load.start()
        except BaseException:
            self.processes.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind: Any, failure: Any, trace: Any) -> None:
        if kind is not None:
            self.processes.__exit__(kind, failure, trace)
            return
        try:
            self._finish()
        except BaseException:
            self.processes.__exit__(*sys.exc_info())
            raise
        self.processes.__exit__(None, None, None)

    # --- what a fault may do ---------------------------------------------------------------------

    def moment(self, low: int = 10, high: int = 60) -> None:
        """Let some records pass: how many, is drawn from the seed."""
        self.load.more(self.chance.randint(low, high))

    def anyone(self, role: str = "worker") -> Member:
        """One of those that run."""
        return self.chance.choice([m for m in self.processes.of(role) if not m.frozen])

    def kill(self, member: Member) -> None:
        """`kill -9`, counted, with the time until its partitions answer again."""
        owned = set(member.partitions) or set(range(self.stage.partitions))
        when = self.processes.kill(member)
        self.count()
        self.hits[member.role].append((when, owned))
        if member.role == "worker" and not self.snapshots_lost:
            self._check_committed_is_stored(self.chance.choice(sorted(owned)))

    def _check_committed_is_stored(self, partition: int) -> None:
        """Nothing is committed before it is stored; read in this order, since others may go on."""
        committed = self.committed("worker", "journal")[partition] or 0
        stored = map(offset_of, StoredSnapshots(self.stage, "worker", partition).manifests())
        what = f"partition {partition}: {committed} is committed and has no snapshot"
        assert committed <= max(stored, default=0), what

    def freeze_until_replaced(
        self, role: str = "worker", alone: bool = False, away: tuple[int, int] = (60, 240)
    ) -> None:
        """Freeze one until another owns what it had, and wake it then: a zombie.

        `alone`: the other has left when it wakes, so it is given its partitions back and must
        notice that others were at work meanwhile. `away`: how many records are sent until then.
        """
        zombie = self.anyone(role)
        self.processes.freeze(zombie)
        self.count()
        self.await_whole(role)
        self.moment(*away)
        if alone:
            for other in self.processes.of(role):
                if other is not zombie:
                    assert self.processes.end(other) == 0
        self.processes.thaw(zombie)
        self.await_whole(role)
        if alone:
            self.moment()
            self.processes.start(role)
            self.await_whole(role)

    def count(self, faults: int = 1) -> None:
        """A fault was injected."""
        self.faults += faults

    def hit(self, partitions: Iterable[int] | None = None, role: str = "worker") -> None:
        """From now on the next output of these partitions (default: all) is waited for."""
        everywhere = range(self.stage.partitions)
        self.hits[role].append((time.time(), set(everywhere if partitions is None else partitions)))

    def await_whole(self, role: str = "worker", limit_s: float = 120) -> None:
        """Until every partition has one owner and all are ready; what crashed is started again."""

        def whole() -> bool:
            self.tend()
            return self.processes.is_whole(role)

        try:
            wait_until(whole, f"every partition to have one {role}, all ready", limit_s)
        except AssertionError:
            for member in self.processes.of(role):
                about = f"frozen {member.frozen}: {member.about()}"
                sys.stderr.write(f"--- {member.process.log_path.name}, {about}\n")
            raise

    def tend(self) -> None:
        """Start again who ended by itself and asks for it, as a supervisor would."""
        for member in list(self.processes.dead()):
            code = member.process.child.returncode
            name = member.process.log_path.name
            last = member.process.log_path.read_text(errors="replace")[-1500:]
            sys.stderr.write(f"--- {name} ended by itself with {code}: {last}\n")
            assert code == FAILED, f"{name} ended with {code}: {last}"
            member.gone = True
            self.processes.start(member.role)

    # --- the end ---------------------------------------------------------------------------------

    def await_quiet(self, *roles: str) -> None:
        """Until every input is read, answered, stored and committed, by these roles or by all."""
        with closing(Reader(self.stage.broker.config)) as reader:
            for role in roles or self.plan.roles:
                self.await_whole(role, QUIET_S)
                wait_until(partial(self._is_quiet, role, reader), f"quiet: {role}", QUIET_S)

    def _is_quiet(self, role: str, reader: Reader) -> bool:
        self.tend()
        owners = self.processes.owners(role)
        settled: Callable[..., bool] = _worker_settled if role == "worker" else _evaluator_settled
        for number in range(self.stage.partitions):
            ends = {
                name: reader.watermarks(self.stage.topic(name), number).high
                for name in ("features", "labels", "journal", "predictions")
            }
            if not any(settled(about, ends, self.stage) for _, about in owners.get(number, [])):
                return False
        return role == "evaluator" or self._is_committed(reader)

    def _is_committed(self, reader: Reader) -> bool:
        """Source offsets are committed until it is done; others once, with their snapshot."""
        for name in SOURCES:
            for number, offset in self.committed("worker", name).items():
                if (offset or 0) != reader.watermarks(self.stage.topic(name), number).high:
                    return False
        return True

    def committed(self, role: str, name: str) -> dict[int, int | None]:
        """What the group of a role has committed of a topic."""
        group = f"{self.stage.prefix}dtgol-{role}"
        numbers = range(self.stage.partitions)
        return committed_offsets(self.stage.broker.config, group, self.stage.topic(name), numbers)

    def _finish(self) -> None:
        self.load.finish()
        self.await_quiet()
        counts = {
            number: [about["counts"] for _, about in each]
            for number, each in self.processes.owners("worker").items()
        }
        for name, code in self.processes.end_all().items():
            assert code == 0, f"{name} did not end in good order: {code}"
        observed = Observed.of(self.stage, self.history)
        found, self.folded = check_worker(observed)
        for number, reported in counts.items():
            # The plus leaves zeros out: a restored counter has none.
            if +self.folded[number].fold.counts not in [+Counter(each) for each in reported]:
                found.differs(f"partition {number}: the worker has counted otherwise")
        self._add("worker", found, append_times(observed.read("predictions")))
        if "evaluator" in self.plan.roles:
            scored = check_evaluator(observed)
            self._add("evaluator", scored, append_times(observed.read("scores")))

    def _add(self, role: str, found: Found, appended: Mapping[int, list[float]]) -> None:
        self.rows.append(
            Row(
                fault=self.plan.fault,
                of=role,
                store=self.plan.store,
                seed=self.seed,
                inputs=found.inputs,
                faults=self.faults,
                lost=found.lost,
                duplicates=found.duplicates,
                differing=found.differing,
                twice=found.twice,
                equal=found.equal,
                recoveries_s=[_next(when, hit, appended) for when, hit in self.hits[role]],
                remarks=found.remarks,
            )
        )


def kill_at(trial: Trial, role: str, points: Sequence[str]) -> None:
    """Kill one process at each point; while one goes towards its point, so does another."""
    left = list(points)
    under_way: list[Member] = []
    while left or under_way:
        while left and len(under_way) < 2:
            times = trial.chance.randint(2, 6)
            under_way.append(trial.processes.start(role, at=left.pop(), times=times))
        reached = wait_until(
            lambda: [member for member in under_way if member.reached()],
            "a point to be reached",
            REACH_S,
            lambda: all(member.alive for member in under_way),
        )
        trial.moment(1, 20)
        trial.kill(reached[0])
        under_way.remove(reached[0])


def _next(when: float, partitions: set[int], appended: Mapping[int, list[float]]) -> float:
    """Seconds until every one of the partitions has had an output again."""
    waits = [min((t - when for t in appended[n] if t > when), default=0.0) for n in partitions]
    return max(waits, default=0.0)


def _worker_settled(about: Mapping[str, Any], ends: Mapping[str, int], stage: Stage) -> bool:
    marks = about.get("marks", {})
    return (
        bool(about["ready"])
        and about["held_for_merge"] == 0
        and about["snapshot_offset"] == ends["journal"]
        and all(marks.get(stage.topic(name), -1) == ends[name] - 1 for name in SOURCES)
    )


def _evaluator_settled(about: Mapping[str, Any], ends: Mapping[str, int], _: Stage) -> bool:
    read = about.get("next_offsets", {})
    wanted = {name: ends[name] for name in EVALUATED}
    stored = offset_of(about["snapshot"]) if about["snapshot"] else 0
    return bool(read == wanted and stored == sum(wanted.values()))
