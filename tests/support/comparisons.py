"""Files, jobs, outcomes and a small protocol, for the tests of `dtgol compare`."""

from pathlib import Path
from typing import get_args

import numpy as np

from dtgol_core.streams import Delays
from pipeline.offline.compare.jobs import Job, RunBlock
from pipeline.offline.compare.methods import Tier
from pipeline.offline.compare.scores import BlindZone, Outcome
from pipeline.offline.compare.sources import Family, StreamSource

TIERS: tuple[Tier, ...] = get_args(Tier)


def outcome(cer: float, us: float = 100.0, blind: BlindZone | None = None) -> Outcome:
    return Outcome(100, 0, cer, 1.0 - cer, 0.5, cer, us, ((50, 0.8), (100, 0.9)), blind)


def job(stream: str, method: str, seed: int = 0, delay: int = 10, family: Family = "sets") -> Job:
    source = StreamSource(stream, 100, family)
    return Job(source, "none", delay, seed, method, f"{stream}{method}{seed}{delay}")


def small(seeds: int = 1, delay: int = 20, late: Delays = "fixed") -> list[RunBlock]:
    """One short stream, for every method."""
    return [RunBlock((StreamSource("sea", 200, change=100),), (delay,), seeds, TIERS, late=late)]


def two_streams() -> list[RunBlock]:
    streams = tuple(StreamSource(name, 200, change=100) for name in ("sea", "rbf"))
    return [RunBlock(streams, (20,), 1, TIERS)]


def csv_folder(where: Path) -> Path:
    """Three sets whose label can be learnt, as files."""
    generator = np.random.default_rng(1)
    data = where / "data"
    data.mkdir()
    for name in ("beta", "Alpha", "magic04"):
        lines = ["a,b,c,label"]
        for _ in range(150):
            y = int(generator.integers(2))
            a, b, c = generator.normal(2.0 * y - 1.0, 1.0, size=3).round(3)
            lines.append(f"{a},{b},{c},{y}")
        (data / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return data
