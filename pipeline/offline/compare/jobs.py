"""What is to be run: one job per stream, mask, delay, seed and method; and what each is called.

A plan is a list of blocks (`pipeline.offline.compare.profiles` has them).

A job's key names everything that decides its result: the rows, the method's code with all of
this project's code that it imports, its settings. A result under that key need not be run again.
"""

import ast
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TypeAlias

from dtgol_core.streams import Delays
from pipeline.offline.compare.methods import Method, Tier
from pipeline.offline.compare.sources import Family, StreamSource

OWN = ("dtgol_core", "pipeline", "topics")
Cell: TypeAlias = tuple[str, str, int, Delays, int]
"""Stream, mask, delay, how delays are drawn, seed."""


@dataclass(frozen=True, slots=True)
class RunBlock:
    """Streams that are run alike, and with which delays, masks, seeds and tiers of methods."""

    streams: tuple[StreamSource, ...]
    delays: tuple[int, ...]
    seeds: int
    tiers: tuple[Tier, ...]
    masks: tuple[str, ...] = ("none",)
    late: Delays = "fixed"


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    source: StreamSource
    missing: str
    delay: int
    seed: int
    method: str
    key: str
    late: Delays = "fixed"
    """How the delays of the labels are drawn; `delay` is their mean."""
    us_estimate: int = 0

    @property
    def seconds_estimate(self) -> float:
        """Processor time that it is expected to take."""
        return self.source.rows * self.us_estimate / 1e6

    @property
    def family(self) -> Family:
        """Of its stream."""
        return self.source.family

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self.source.name

    @property
    def cell(self) -> Cell:
        """What methods must share to be compared."""
        return self.source.name, self.missing, self.delay, self.late, self.seed


def plan(blocks: Sequence[RunBlock], methods: Sequence[Method]) -> list[Job]:
    """All jobs, each once. Seed by seed, so that a run that is stopped has whole tables of fewer
    seeds."""
    jobs: dict[str, Job] = {}
    for seed in range(max((block.seeds for block in blocks), default=0)):
        for block in blocks:
            chosen = [method for method in methods if method.tier in block.tiers]
            for cell in product(block.streams, block.masks, block.delays):
                for method in chosen if seed < block.seeds else ():
                    key = _key(*cell, seed, method, block.late)
                    us = method.us_estimate
                    jobs[key] = Job(*cell, seed, method.name, key, block.late, us)
    return list(jobs.values())


def _key(
    source: StreamSource, missing: str, delay: int, seed: int, method: Method, late: Delays
) -> str:
    # A file counts by its content, wherever it lies.
    decides = {
        "stream": {**asdict(source), "path": ""},
        "missing": missing,
        "delay": delay,
        "late": late,
        "seed": seed,
        "method": method.name,
        "settings": method.settings,
        "code": code_digest(
            method.module, "pipeline.offline.compare.sources", "pipeline.offline.compare.scores"
        ),
        "numpy": _version("numpy"),
        "peers": [_version(name) for name in ("river", "scikit-learn") if method.group == "peer"],
    }
    text = json.dumps(decides, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@cache
def code_digest(*modules: str) -> str:
    """Of the source of these modules and of everything of ours that they import."""
    digest = hashlib.sha256()
    for name in sorted(_closure(modules)):
        digest.update(name.encode() + b"\0" + _source(name).encode())
    return digest.hexdigest()[:16]


def _closure(modules: Sequence[str]) -> set[str]:
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_imports(name))
    return seen


@cache
def _imports(module: str) -> tuple[str, ...]:
    found = set()
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return tuple(name for name in sorted(found) if name.split(".")[0] in OWN)


@cache
def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None, module
    return Path(spec.origin).read_text(encoding="utf-8") if spec.origin else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
