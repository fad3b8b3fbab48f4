"""What the whole path carries on a real broker: features with their labels per second, latency.

``make speed`` or ``python -m benchmarks.throughput``: one and two workers beside a Faust agent that
only echoes the same records, all in one run, each on topics of its own with 4 partitions. Every
process is up and warm (the learners' windows are full) and is stopped while the backlog is loaded;
the clock runs from its going on to the last answer received. A pair is one record of features and
one label. Latency: from the moment a record should be sent at an even pace (so a late sender is
not forgiven) to its prediction, with the client's own settings. Machines are noisy: the echo is
measured first and last, read the ratios and the CPU time per pair.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from pipeline.runtime.environment import prepare

prepare()

import numpy as np  # noqa: E402

from benchmarks.subject import (  # noqa: E402
    COLUMNS,
    LATE,
    QUIET_S,
    Subject,
    await_shares,
    subject,
)
from pipeline.runtime.warmup import warm_up  # noqa: E402
from pipeline.sandbox.brokers import KINDS, Broker, open_broker  # noqa: E402
from pipeline.sandbox.demo.services import PARTITIONS  # noqa: E402

RAMP_S = 2.0
"""The start of a pace, not counted."""
SHARES = (0.1, 0.5, 0.9)
ECHO = "Faust echo, librdkafka"
RESULTS: list[tuple[str, float, float, str]] = []
"""Of each run: its name, pairs per second, CPU microseconds per pair, the machine's load."""


def throughput(name: str, tested: Subject, pairs: int) -> float:
    """Pairs per second of a backlog; prints its row."""
    tested.signal(signal.SIGSTOP)
    for _ in range(pairs):
        tested.send()
    tested.sender.flush()
    used, began = tested.cpu_s(), time.perf_counter()
    tested.signal(signal.SIGCONT)
    last, missing = tested.drain()
    rate, cpu = pairs / (last - began), (tested.cpu_s() - used) / pairs * 1e6
    lost = f" ({missing} answers lost)" if missing else ""
    print(f"# {name}: {rate:.0f} pairs/s, {cpu:.0f} µs, load {load()}", file=sys.stderr)
    RESULTS.append((name + lost, rate, cpu, load()))
    return rate


def latency(tested: Subject, rate: float, seconds: float) -> tuple[float, float, float]:
    """Milliseconds p50 and p99 at an even pace, and the pace that was answered."""
    began, sent, taken = time.monotonic_ns(), 0, []
    gap, total = 1e9 / rate, round(rate * seconds)
    first, last = len(tested.seen), began
    while len(tested.seen) < first + total:
        due = began + round(sent * gap)
        now = time.monotonic_ns()
        if sent < total and now >= due:
            tested.send(due)
            sent += 1
            continue
        pause = min(due - now, 5e6) / 1e9 if sent < total else 0.005
        for _, was_due in tested.take(pause, 1):
            last = time.monotonic_ns()
            if was_due > began + RAMP_S * 1e9:
                taken.append((last - was_due) / 1e6)
        if time.monotonic_ns() > last + QUIET_S * 1e9:
            raise SystemExit("predictions do not come any more")
    p50, p99 = np.percentile(taken, (50, 99))
    return float(p50), float(p99), total / (last - began) * 1e9


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def echoes(broker: Broker, home: Path, kind: str, name: str, pairs: int) -> float:
    with subject(broker, home, 2) as tested:
        tested.start("echo", "benchmarks.echo", kind, tested.prefix, broker.bootstrap)
        tested.warm_up()
        return throughput(name, tested, pairs)


def workers(broker: Broker, home: Path, pairs: int, seconds: float) -> list[str]:
    """One worker, its latency, then two; the rows of the table of latencies."""
    rows = []
    with subject(broker, home, 1) as tested:
        command = ("pipeline", "worker", "--bootstrap", broker.bootstrap, "--prefix", tested.prefix)
        tested.start("worker", *command)
        await_shares(tested.services)
        tested.warm_up()
        rate = throughput("one worker", tested, pairs)
        for share in SHARES:
            p50, p99, answered = latency(tested, share * rate, seconds)
            rows.append(f"| {share:.0%} | {answered:.0f} | {p50:.1f} | {p99:.1f} | {load()} |")
        tested.start("worker", *command)
        await_shares(tested.services)
        tested.warm_up()
        throughput("two workers", tested, pairs)
    return rows


def report(kind: str, rows: list[str]) -> None:
    echo = np.mean([rate for name, rate, *_ in RESULTS if name.startswith(ECHO)])
    print(f"\n{os.cpu_count()} cores, broker: {kind}; {COLUMNS} columns, half the cells missing,")
    print(f"{PARTITIONS} partitions, labels {LATE} pairs late; the load is the machine's, 1 minute")
    print("\n| run | pairs/s | ratio to echo | CPU µs per pair | load |")
    print("|---|---:|---:|---:|---:|")
    for name, rate, cpu, busy in RESULTS:
        print(f"| {name} | {rate:.0f} | {rate / echo:.2f} | {cpu:.0f} | {busy} |")
    print("\n| share of one worker's throughput | pairs/s | p50 ms | p99 ms | load |")
    print("|---:|---:|---:|---:|---:|")
    for row in rows:
        print(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=KINDS, default="local", help="which kind of broker")
    parser.add_argument("--pairs", type=int, default=6_000, help="size of a backlog")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a paced run")
    asked = parser.parse_args()
    warm_up()
    with (
        tempfile.TemporaryDirectory(prefix="dtgol-bench-") as folder,
        open_broker(asked.broker) as broker,
    ):
        home = Path(folder)
        echoes(broker, home, "librdkafka", ECHO, asked.pairs)
        echoes(broker, home, "batches", "Faust echo, our consumer", asked.pairs)
        rows = workers(broker, home, asked.pairs, asked.seconds)
        echoes(broker, home, "send", "Faust echo, topic.send", asked.pairs)
        echoes(broker, home, "librdkafka", f"{ECHO}, again", asked.pairs)
        report(f"{broker.kind} {broker.version}", rows)


if __name__ == "__main__":
    main()
