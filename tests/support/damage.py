"""The program that tests/unit/core/test_damage.py runs: a learner from damaged snapshots.

``python -m tests.support.damage [SEED PART PARTS]`` damages one array or number of a sound snapshot
at a time and seals it again: it must be refused by name, or go on without an error and with
probabilities, and leave a snapshot that is taken. With ``NUMBA_BOUNDSCHECK=1`` an index outside its
array is an error, where a compiled loop would read or write what is not its own. Writes as JSON how
many were tried, and what was wrong.
"""

import json
import random
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from dtgol_core.config import Config
from dtgol_core.ids import id_hash
from dtgol_core.learner import Learner
from dtgol_core.state import Snapshot, SnapshotError
from dtgol_core.types import Rejection

CONFIG = Config.read(
    {
        "copula": {"window": 8},
        "graph": {"unverified": 6, "verified": 4},
        "delay": {"expire_ms": 10_000_000, "corrected": "last"},
    }
)
RECORDS, AFTER, LATE = 420, 24, 9
FLOATS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 0.5, 2.0, 1e9, -1e9)
INTS = (-(2**62), -300, -2, -1, 0, 1, 2, 40, 127, 300, 2**62)
NUMBERS = (-(10**30), -(2**53), -2, -1, 0, 1, 300, 2**53, 10**30, -0.5, 0.5, 1e300)
OTHERS: tuple[Any, ...] = (None, "x", True, [], {}, [0], {"a": 1})


def record(number: int) -> dict[str, Any]:
    """Mixed and incomplete, with a level and a feature that come later."""
    x: dict[str, Any] = {
        "real": number * 0.37 % 1.7,
        "count": number % 4,
        "flag": number % 5 < 2,
        "ward": "ABCDE"[number % (3 if number < 200 else 5)],
        "late": number * 0.11 % 1.0 if number > 250 else None,
    }
    return {name: value for place, (name, value) in enumerate(x.items()) if (number + place) % 3}


def play(learner: Learner, numbers: range) -> list[float]:
    """Records with labels that come late, early, twice, corrected, or never; all answers."""
    answers = []
    for number in numbers:
        why = number % 7 == 0
        forecast = learner.observe(f"i{number}", record(number), 1_000 * number, why)
        if not isinstance(forecast, Rejection):
            answers += [forecast.p, forecast.naive, *(each.p for each in forecast.experts.values())]
        if number % 5 and number >= LATE:
            learner.learn(f"i{number - LATE}", number % 3 % 2)
        if number % 11 == 0:
            learner.learn(f"i{number + 4}", 1)
        if number % 13 == 0 and number >= 40:
            learner.learn(f"i{number - 40}", number % 2)
    return answers


def damages(whole: Snapshot, chance: random.Random) -> Iterator[tuple[str, Snapshot]]:
    """Each thing that is done to the snapshot, in words, and the result."""
    for name, array in whole.arrays.items():
        for what, damaged in changed(array, chance):
            yield f"{name}: {what}", Snapshot({**whole.arrays, name: damaged}, whole.manifest)
    for path in paths(whole.manifest):
        for value in (*NUMBERS, *OTHERS):
            manifest = deepcopy(whole.manifest)
            place = manifest
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            yield f"{path}: {value}", Snapshot(whole.arrays, manifest)


def changed(array: Any, chance: random.Random) -> Iterator[tuple[str, Any]]:
    """Other numbers, other lengths, another order."""
    if array.dtype.kind == "f":
        values: tuple[float, ...] = FLOATS
    else:
        bounds = np.iinfo(array.dtype)
        values = tuple(each for each in INTS if bounds.min <= each <= bounds.max)
    for value in values if array.size else ():
        one, every = array.copy(), array.copy()
        one.reshape(-1)[chance.randrange(array.size)] = every[...] = value
        yield f"one {value}", one
        yield f"all {value}", every
    for axis in range(array.ndim):
        if array.shape[axis]:
            yield f"shorter {axis}", np.delete(array, -1, axis)
    if array.ndim and len(array):
        yield "longer", np.concatenate([array, array[:1]])
        yield "backwards", array[::-1].copy()


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values of a manifest but those of the settings."""
    if path and path[0] == "config":
        return
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(each, (*path, key))
    else:
        yield path


def wrong(damaged: Snapshot) -> str | None:
    """What is wrong with what became of it; None if it was refused, or goes on."""
    arrays = {name: array.copy() for name, array in damaged.arrays.items()}
    at = "restore"
    try:
        learner = Learner.restore(CONFIG, Snapshot(arrays, deepcopy(damaged.manifest)))
        at = "going on"
        answers = play(learner, range(RECORDS, RECORDS + AFTER))
        for number in (*range(RECORDS - 30, RECORDS + 5, 4), 3):
            learner.erase(id_hash(f"i{number}"))
        answers += play(learner, range(RECORDS + AFTER, RECORDS + 2 * AFTER))
        at = "its own snapshot"
        Learner.restore(CONFIG, learner.snapshot())
    except SnapshotError as error:
        return None if at == "restore" else f"{at}: {error}"
    except Exception as error:
        return f"{at}: {error!r}"
    none = [p for p in answers if not 0.0 <= p <= 1.0]
    return f"no probability: {none[0]}" if none else None


def main() -> None:
    seed, part, parts = (int(each) for each in (sys.argv[1:] or ["0", "0", "1"]))
    learner = Learner(CONFIG)
    play(learner, range(RECORDS))
    whole = learner.snapshot()
    assert wrong(whole) is None
    found, tried = [], 0
    with np.errstate(all="ignore"):
        for number, (what, damaged) in enumerate(damages(whole, random.Random(seed))):
            if number % parts == part:
                tried += 1
                became = wrong(damaged)
                if became is not None:
                    found.append(f"{what}: {became}")
    sys.stdout.write(json.dumps({"tried": tried, "found": found}))


if __name__ == "__main__":
    main()
