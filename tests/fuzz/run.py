"""Targets, each for a bounded time: ``python -m tests.fuzz.run TARGET... --seconds 10 --seed 1``.

With atheris (extra `fuzz`; Linux) the search of one target is guided by coverage: libFuzzer keeps
what reaches new code. Without it, and for several targets, changed seeds alone. An input that takes
longer than a few seconds is a hang and one that wants gigabytes is a bomb; both are finds. Exit
code 0: nothing found. A find is written to ``--finds`` and its trace to stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import logging
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from pipeline.runtime.environment import prepare

HANG_S = 60
"""Wall clock, on a machine that may be busy; nothing here takes more than milliseconds of work."""
MEMORY_MB = 4096
INPUT_BYTES_MAX = 65_536
INSTRUMENTED = ["topics", "pipeline", "dtgol_core"]
STAGES = ("copula", "graph", "marginals", "softlabels", "tracks")
COMPILED = [f"dtgol_core.{stage}" for stage in STAGES]
"""Numba reads byte code and cannot read what the guide writes into it."""


def main() -> None:
    """Choose the engine and run it; leaves by exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="+", metavar="TARGET[=SECONDS]")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--finds", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--plain", action="store_true", help="without atheris even if it is there")
    chosen = parser.parse_args()
    prepare()
    logging.disable()
    warnings.simplefilter("ignore")
    names = [target.partition("=") for target in chosen.targets]
    wanted = {name: float(seconds or chosen.seconds) for name, _, seconds in names}
    if chosen.plain or len(wanted) > 1 or importlib.util.find_spec("atheris") is None:
        _plain(wanted, chosen)
    else:
        ((target, seconds),) = wanted.items()
        _guided(target, seconds, chosen)


def _plain(wanted: Mapping[str, float], chosen: argparse.Namespace) -> None:
    from pipeline.runtime.warmup import warm_up

    warm_up()  # one that is being compiled is no hang
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
    signal.signal(signal.SIGALRM, _hang)
    for name, seconds in wanted.items():
        _search(name, seconds, chosen)


def _search(name: str, seconds: float, chosen: argparse.Namespace) -> None:
    from tests.fuzz.mutation import mutated
    from tests.fuzz.seeds import seeds
    from tests.fuzz.targets import TARGETS

    target, chance, pool = TARGETS[name], Random(chosen.seed), seeds(name)
    until, count = time.monotonic() + seconds, 0
    queue = list(pool)
    while time.monotonic() < until:
        data = queue.pop() if queue else chance.choice(pool)
        if count >= len(pool):
            for _ in range(chance.randint(1, 3)):
                data = mutated(data, chance)[:INPUT_BYTES_MAX]
        count += 1
        signal.alarm(HANG_S)
        try:
            target(data)
        except BaseException:
            signal.alarm(0)
            _find(name, data, chosen.finds)
        signal.alarm(0)
    sys.stdout.write(f"{name}: {count} inputs, plain, nothing found\n")


def _hang(*_: object) -> NoReturn:
    raise TimeoutError(f"longer than {HANG_S} s")


def _find(target: str, data: bytes, folder: Path) -> NoReturn:
    path = folder / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    traceback.print_exc()
    sys.stderr.write(f"found: {path}\n")
    raise SystemExit(1)


def _guided(target: str, seconds: float, chosen: argparse.Namespace) -> None:
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED, exclude=COMPILED):
        from pipeline.runtime.warmup import warm_up
        from tests.fuzz.mutation import mutated
        from tests.fuzz.seeds import seeds
        from tests.fuzz.targets import TARGETS

    pool = seeds(target)
    warm_up()  # one that is being compiled is no hang
    folder = Path(tempfile.mkdtemp(prefix="dtgol-fuzz-"))
    for number, data in enumerate(pool):
        (folder / str(number)).write_bytes(data)

    def blind(data: bytes, chance: Random) -> bytes:
        return bytes(atheris.Mutate(data, max(len(data) + 64, 64)))

    def mutate(data: bytes, size: int, seed: int) -> bytes:
        return mutated(bytes(data), Random(seed), blind)[:size]

    options: list[Any] = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-timeout={HANG_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-seed={chosen.seed}",
        f"-artifact_prefix={chosen.finds}/{target}-",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(folder)], TARGETS[target], custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
