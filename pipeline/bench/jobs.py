"""What is to be run: one job per stream, mask, delay, seed and method; and what each is called.

A job's key names everything that decides its result: the rows, the method's code with all of
this project's code that it imports, its settings. A result under that key need not be run again.
"""

import ast
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from dtgol_core.streams import Delays
from pipeline.bench.methods import Method
from pipeline.bench.sources import Source

DELAYS = (10, 50, 100)
MASKS = ("none", "pairs")
OWN = ("dtgol_core", "pipeline", "topics")


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    source: Source
    missing: str
    delay: int
    seed: int
    method: str
    key: str
    late: Delays = "fixed"
    """How the delays of the labels are drawn; `delay` is their mean."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Which runs a benchmark is made of; the full one is spec §7."""

    files: tuple[Source, ...]
    drift: tuple[Source, ...]
    drift_delay: int
    seeds: int
    delays: tuple[int, ...] = DELAYS
    masks: tuple[str, ...] = MASKS
    late: Delays = "fixed"

    def cells(self) -> Iterator[tuple[Source, str, int]]:
        """(stream, mask, delay) of every cell of the tables."""
        for source in self.files:
            for missing in self.masks:
                for delay in self.delays:
                    yield source, missing, delay
        for source in self.drift:
            yield source, "none", self.drift_delay


def plan(protocol: Protocol, methods: Sequence[Method]) -> list[Job]:
    """All jobs. Seed by seed, so that a run that is stopped has whole tables of fewer seeds."""
    return [
        Job(*cell, seed, method.name, _key(*cell, seed, method, protocol.late), protocol.late)
        for seed in range(protocol.seeds)
        for cell in protocol.cells()
        for method in methods
    ]


def _key(source: Source, missing: str, delay: int, seed: int, method: Method, late: Delays) -> str:
    # A file counts by its content, wherever it lies.
    decides = {
        "stream": {**asdict(source), "path": ""},
        "missing": missing,
        "delay": delay,
        "late": late,
        "seed": seed,
        "method": method.name,
        "settings": method.settings,
        "code": code_digest(method.module, "pipeline.bench.sources", "pipeline.bench.scores"),
        "numpy": _version("numpy"),
        "river": _version("river") if method.group == "peer" else "",
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
