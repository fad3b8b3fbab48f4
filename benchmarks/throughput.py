"""What the whole path carries on a real broker: features with their labels per second, latency.

``make speed`` or ``python -m benchmarks.throughput``: in one run the bare loops (`benchmarks.bare`:
Learner, Fold, River), echoes of the same records by librdkafka, Quix Streams and Faust, one worker
and two; each on topics of its own with 4 partitions. What is measured has a core of its own where
there are enough, broker and sender share the first. Every process is up and warm (the learners'
windows are full) and is stopped while the backlog is loaded; the clock runs from its going on to
the last answer received. A pair is one record of features and one label. Latency: from the moment a
record should be sent at an even pace (so a late sender is not forgiven) to its prediction, with the
client's own settings. CPU is processor time of the measured process alone, by ``/proc``: on a busy
machine read that and the ratios. The bare loops are run first and last. ``--before CHECKOUT`` adds
the Fold and one worker of another checkout of this repository.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from pipeline.runtime.environment import prepare

prepare()

import numpy as np  # noqa: E402

from benchmarks.report import table, write_section  # noqa: E402
from benchmarks.subject import (  # noqa: E402
    COLUMNS,
    CORES,
    LATE,
    QUIET_S,
    Subject,
    await_shares,
    keep_first_core,
    on_core,
    subject,
)
from pipeline.runtime.warmup import warm_up  # noqa: E402
from pipeline.sandbox.brokers import KINDS, Broker, open_broker  # noqa: E402
from pipeline.sandbox.demo.services import PARTITIONS, Service  # noqa: E402

RAMP_S = 5.0
"""The start of a pace, not counted: the broker's virtual machine still compiles, on its one core.
Seen at 480 pairs/s: p50 of 140 ms in the first quarter of a second, 20 after three."""
SPIN_S = 0.001
"""A shorter wait is slept: asked to wait less, the consumer returns at once, and the sender would
hold the core that it shares with the broker (p50 at 1,750 pairs/s 37 ms in place of 23)."""
SHARES = (0.1, 0.5, 0.9)
PACE = 480.0
"""Pairs per second of a pace that stays the same from release to release."""
BARE = {"learner": "bare Learner loop", "fold": "bare Fold loop", "river": "bare River LR loop"}
FOLD = BARE["fold"]
BEFORE = ", before"
ECHOES = {
    "confluent": "echo: confluent-kafka",
    "batches": "echo: Faust, our consumer",
    "librdkafka": "echo: Faust, librdkafka producer",
    "send": "echo: Faust, topic.send",
}
QUIX = Path(__file__).with_name("quix_echo.py")
QUIX_PYTHON = Path(sys.prefix) / "quix" / "bin" / "python"
STARTS = 3
LOOK_EVERY_S = 0.01


class Row(NamedTuple):
    """One run of a backlog; `rate` is pairs per second."""

    name: str
    rate: float
    cpu_us: float
    load: str


class Paced(NamedTuple):
    """One run at an even pace; a loop without Kafka has no latency."""

    name: str
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_us: float
    load: str


Shown = TypeVar("Shown", Row, Paced)


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def bare(kind: str, pairs: int, before: Path | None = None) -> Row:
    """A loop without Kafka, in a process of its own on the measured core."""
    taken = bare_us([*of_checkout(before), sys.executable], kind, str(pairs))
    return shown(Row(BARE[kind] + (BEFORE if before else ""), 1e6 / taken, taken, load()))


def bare_us(python: Sequence[str], *given: str) -> float:
    """Processor microseconds per pair."""
    with on_core(0):
        command = [*python, "-m", "benchmarks.bare", *given]
        return float(subprocess.run(command, capture_output=True, check=True).stdout)


def bare_paced(rate: float, seconds: float) -> Paced:
    """The Fold alone at an even pace, sleeping between two pairs."""
    taken = bare_us([sys.executable], "fold", f"{rate * seconds:.0f}", str(rate))
    return shown(Paced(f"{rate:.0f}/s, {FOLD}", rate, None, None, taken, load()))


def of_checkout(checkout: Path | None) -> list[str]:
    """What stands before a command that is to run the code of another checkout, if there is one."""
    return ["env", "PYTHONSAFEPATH=1", f"PYTHONPATH={checkout}"] if checkout else []


def shown(found: Shown) -> Shown:
    print(f"# {found}", flush=True)
    return found


def throughput(name: str, tested: Subject, pairs: int) -> Row:
    """A backlog: from going on to the last answer."""
    tested.signal(signal.SIGSTOP)
    for _ in range(pairs):
        tested.send()
    tested.sender.flush()
    used, began = tested.cpu_s(), time.perf_counter()
    tested.signal(signal.SIGCONT)
    last, missing = tested.drain()
    cpu = (tested.cpu_s() - used) / pairs * 1e6
    lost = f" ({missing} answers lost)" if missing else ""
    return shown(Row(name + lost, pairs / (last - began), cpu, load()))


def paced(name: str, tested: Subject, rate: float, seconds: float) -> Paced:
    """Latency and CPU at an even pace, and the pace that was answered."""
    began, sent, taken = time.monotonic_ns(), 0, []
    gap, total = 1e9 / rate, round(rate * seconds)
    first, last, used = len(tested.seen), began, tested.cpu_s()
    while len(tested.seen) < first + total:
        due = began + round(sent * gap)
        now = time.monotonic_ns()
        if sent < total and now >= due:
            tested.send(due)
            sent += 1
            continue
        pause = min(due - now, 5e6) / 1e9 if sent < total else 0.005
        if pause < SPIN_S:
            time.sleep(pause)
            pause = 0.0
        for _, was_due in tested.take(pause):
            last = time.monotonic_ns()
            if was_due > began + RAMP_S * 1e9:
                taken.append((last - was_due) / 1e6)
        if time.monotonic_ns() > last + QUIET_S * 1e9:
            raise SystemExit("predictions do not come any more")
    p50, p99 = np.percentile(taken, (50, 99))
    cpu = (tested.cpu_s() - used) / total * 1e6
    return shown(Paced(name, total / (last - began) * 1e9, float(p50), float(p99), cpu, load()))


def echo(broker: Broker, home: Path, name: str, pairs: int, *command: str) -> Row:
    with subject(broker, home, 2) as tested:
        tested.start("echo", *command, tested.prefix, broker.bootstrap)
        tested.warm_up()
        return throughput(name, tested, pairs)


def worker_command(broker: Broker, tested: Subject, before: Path | None = None) -> Sequence[str]:
    place = "--bootstrap", broker.bootstrap, "--prefix", tested.prefix
    return *of_checkout(before), sys.executable, "-m", "pipeline", "worker", *place


def worker_before(
    broker: Broker, home: Path, pairs: int, seconds: float, checkout: Path
) -> tuple[Row, Paced]:
    """One worker of another checkout, and its latency."""
    with subject(broker, home, 1) as tested:
        tested.start("worker", *worker_command(broker, tested, checkout))
        await_shares(tested.services)
        tested.warm_up()
        row = throughput("one worker" + BEFORE, tested, pairs)
        return row, paced(f"{PACE:.0f}/s" + BEFORE, tested, PACE, seconds)


def workers(
    broker: Broker, home: Path, pairs: int, seconds: float
) -> tuple[list[Row], list[Paced]]:
    """One worker, its latency, then two."""
    with subject(broker, home, 1) as tested:
        command = worker_command(broker, tested)
        tested.start("worker", *command)
        await_shares(tested.services)
        tested.warm_up()
        rows = [throughput("one worker", tested, pairs)]
        paces = [paced(f"{PACE:.0f}/s", tested, PACE, seconds)]
        for share in SHARES:
            paces.append(paced(f"{share:.0%}", tested, share * rows[0].rate, seconds))
        tested.start("worker", *command)
        await_shares(tested.services)
        tested.warm_up()
        rows.append(throughput("two workers", tested, pairs))
    return rows, paces


def start_seconds(broker: Broker, home: Path) -> float:
    """The quickest of some starts: from exec to ready, with a warm cache and no state."""
    taken = []
    for _ in range(STARTS):
        with subject(broker, home, 1) as tested:
            began = time.perf_counter()
            service = tested.start("worker", *worker_command(broker, tested))
            while not ready(service):
                service.check()
                time.sleep(LOOK_EVERY_S)
            taken.append(time.perf_counter() - began)
            print(f"# start: {taken[-1]:.2f} s, load {load()}", flush=True)
    return min(taken)


def ready(service: Service) -> bool:
    try:
        with urllib.request.urlopen(f"{service.url}/readyz", timeout=10):
            return True
    except (urllib.error.HTTPError, OSError):
        return False


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def tables(kind: str, rows: list[Row], paces: list[Paced], start_s: float) -> str:
    """All that was measured, as Markdown."""
    fold = float(np.mean([row.cpu_us for row in rows if row.name == FOLD]))
    cores = (
        f"{len(CORES)} cores, the measured process alone on one of them where there are enough"
        if len(CORES) > 1
        else f"{os.cpu_count()} cores, nothing pinned"
    )
    about = (
        f"{cores}; broker: {kind}; {COLUMNS} columns, half the cells missing, {PARTITIONS} "
        f"partitions, labels {LATE} pairs late; the load is the machine's, of 1 minute."
    )

    def cpu(each: Row | Paced) -> list[str]:
        return [f"{each.cpu_us:.0f}", f"{each.cpu_us / fold:.2f}", each.load]

    runs = [[row.name, f"{row.rate:.0f}", *cpu(row)] for row in rows]
    head = ["run", "pairs/s", "CPU µs per pair", "ratio to the bare Fold", "load"]
    at_pace = [
        [each.name, f"{each.rate:.0f}", *map(milliseconds, (each.p50_ms, each.p99_ms)), *cpu(each)]
        for each in paces
    ]
    pace_head = ["pace of one worker (% of its throughput)", "pairs/s", "p50 ms", "p99 ms"]
    started = f"Worker ready {start_s:.2f} s after its start (best of {STARTS}, kernels compiled)."
    return "\n\n".join([about, table(head, runs), table([*pace_head, *head[2:]], at_pace), started])


def measure(
    broker: Broker, home: Path, pairs: int, seconds: float, peers: bool, before: Path | None
) -> str:
    rows = [bare(kind, pairs) for kind in (BARE if peers else ["fold"])]
    if peers:
        program = [sys.executable, "-m", "benchmarks.echo"]
        for kind, name in ECHOES.items():
            rows.append(echo(broker, home, name, pairs, *program, kind))
        if QUIX_PYTHON.exists():
            command = str(QUIX_PYTHON), str(QUIX)
            rows.append(echo(broker, home, "echo: Quix Streams", pairs, *command))
    alone = bare_paced(PACE, seconds)
    worked, paces = workers(broker, home, pairs, seconds)
    rows += worked
    paces.insert(0, alone)
    if before is not None:
        row, at_pace = worker_before(broker, home, pairs, seconds, before)
        rows += [bare("fold", pairs, before), row]
        paces.append(at_pace)
    rows += [bare(kind, pairs) for kind in (BARE if peers else ["fold"])]
    start_s = start_seconds(broker, home)
    return tables(f"{broker.kind} {broker.version}", rows, paces, start_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=KINDS, default="local", help="which kind of broker")
    parser.add_argument("--pairs", type=int, default=6_000, help="size of a backlog")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a paced run")
    parser.add_argument("--no-peers", action="store_true", help="only the Fold and the workers")
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--report", type=Path, help="a page whose section gets the tables")
    asked = parser.parse_args()
    warm_up()
    keep_first_core()
    with (
        tempfile.TemporaryDirectory(prefix="dtgol-bench-") as folder,
        open_broker(asked.broker) as broker,
    ):
        pace = asked.pairs, asked.seconds
        found = measure(broker, Path(folder), *pace, not asked.no_peers, asked.before)
    print(f"\n{found}")
    if asked.report:
        write_section(asked.report, "throughput", found)


if __name__ == "__main__":
    main()
