"""Generated streams: some with one change between two concepts, some whose classes move all along.

In: a `numpy.random.Generator`. Out: a `Stream`, rows with names and labels. The same generator
state gives the same stream.

`generate` draws SEA, Agrawal, RBF, Hyperplane and a turn of two clouds, with a `Change`: one
concept number and one population number per row are decided first, and a generator only draws rows
for them. `generate_moving` draws clouds, one or two per class, whose centres, or shares, are a
function of the row number.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from dtgol_core.types import FloatArray, IntArray

ChangeKind: TypeAlias = Literal["none", "abrupt", "gradual", "recurring", "covariates"]
Delays: TypeAlias = Literal["fixed", "uniform", "geometric"]


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to a stream.

    Parameters
    ----------
    kind
        ``abrupt``: the second concept from row ``at`` on. ``gradual``: each row takes the second
        concept with a probability that rises from 0 to 1 around ``at``, over about ``width`` rows.
        ``recurring``: the concepts take turns, ``at`` rows each. ``covariates``: from row ``at`` on
        other rows are drawn, and the same rule labels them. ``none``: the first concept only.
    """

    kind: ChangeKind = "none"
    at: int = 0
    width: int = 1000


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows in order, shape ``(rows, columns)``, their labels, and which concept made each."""

    names: tuple[str, ...]
    features: FloatArray
    labels: IntArray
    concepts: IntArray

    def records(self) -> Iterator[tuple[dict[str, float], int]]:
        """Each row as a record with its label; whole columns give whole numbers, NaN no entry."""
        whole = [bool(np.all(column == np.floor(column))) for column in self.features.T]
        for row, label in zip(self.features.tolist(), self.labels.tolist(), strict=True):
            values = zip(self.names, row, whole, strict=True)
            seen = {name: int(x) if integer else x for name, x, integer in values if x == x}
            yield seen, label


Draw: TypeAlias = Callable[[IntArray, IntArray, np.random.Generator], tuple[FloatArray, IntArray]]
"""(concept, population, generator) -> (features, labels), one row for each entry."""


def generate(
    name: str,
    rows: int,
    generator: np.random.Generator,
    change: Change | None = None,
    noise: float = 0.0,
) -> Stream:
    """A stream by name: ``sea``, ``agrawal``, ``rbf``, ``hyperplane`` or ``moving``.

    `noise` is the share of labels that are flipped, at random.

    >>> stream = generate("sea", 1000, np.random.default_rng(1), Change("abrupt", at=500))
    >>> stream.features.shape, stream.concepts[[499, 500]].tolist()
    ((1000, 3), [0, 1])
    """
    columns, draw = STREAMS[name]
    concept, population = schedule(rows, change or Change(), generator)
    features, labels = draw(concept, population, generator)
    flipped = generator.random(rows) < noise
    return Stream(columns, features, np.where(flipped, 1 - labels, labels), concept)


def schedule(
    rows: int, change: Change, generator: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """The concept and the population of each row, 0 or 1."""
    row = np.arange(rows)
    concept = np.zeros(rows, dtype=np.int64)
    population = np.zeros(rows, dtype=np.int64)
    if change.kind == "abrupt":
        concept[row >= change.at] = 1
    elif change.kind == "gradual":
        # The logistic ramp of MOA: its slope at the middle is one over the width.
        share = 1.0 / (1.0 + np.exp(np.clip(-4.0 * (row - change.at) / change.width, -50, 50)))
        concept[generator.random(rows) < share] = 1
    elif change.kind == "recurring":
        concept[row // max(1, change.at) % 2 == 1] = 1
    elif change.kind == "covariates":
        population[row >= change.at] = 1
    return concept, population


def label_delays(rows: int, mean: int, kind: Delays, generator: np.random.Generator) -> IntArray:
    """Steps until the label of each row comes, at least 1, `mean` on average.

    >>> label_delays(3, 10, "fixed", np.random.default_rng(1)).tolist()
    [10, 10, 10]
    """
    if mean < 1:
        raise ValueError("a label cannot come before its prediction: mean must be >= 1")
    if kind == "uniform":
        return generator.integers(1, 2 * mean, size=rows)
    if kind == "geometric":
        return generator.geometric(1.0 / mean, size=rows)
    return np.full(rows, mean, dtype=np.int64)


def _uniform(population: IntArray, columns: int, generator: np.random.Generator) -> FloatArray:
    """Uniform on [0, 1); the second population leans to high values (density 2x)."""
    share = generator.random((len(population), columns))
    leaning: FloatArray = np.where(population[:, None] == 1, np.sqrt(share), share)
    return leaning


SEA_THRESHOLDS = (7.0, 9.5)
"""Of the four thresholds of the paper (8, 9, 7, 9.5) the two farthest apart: a fifth of the
labels change."""


def sea(
    concept: IntArray, population: IntArray, generator: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Street and Kim (2001), KDD: three columns on [0, 10), label ``x1 + x2 > threshold``."""
    features = 10.0 * _uniform(population, 3, generator)
    threshold = np.array(SEA_THRESHOLDS)[concept]
    return features, (features[:, 0] + features[:, 1] > threshold).astype(np.int64)


def hyperplane(
    concept: IntArray, population: IntArray, generator: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Hulten, Spencer and Domingos (2001), KDD: ten columns on [0, 1), a plane through the middle.

    The weights of each concept are drawn from [−1, 1).
    """
    weights = generator.uniform(-1.0, 1.0, size=(2, 10))
    features = _uniform(population, 10, generator)
    side = np.einsum("ij,ij->i", weights[concept], features - 0.5)
    return features, (side > 0.0).astype(np.int64)


RBF_CENTRES = 20
RBF_SPREAD = 0.1


def rbf(
    concept: IntArray, population: IntArray, generator: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Random centres of MOA: ten columns, 20 centres in the unit cube, each of one class.

    Each concept has centres and classes of its own; the second population draws from the same
    centres with other frequencies.
    """
    centres = generator.random((2, RBF_CENTRES, 10))
    # Half of the centres belong to each class, so that no concept is nearly one-sided.
    classes = np.stack([generator.permutation(RBF_CENTRES) % 2 for _ in range(2)])
    frequency = generator.dirichlet(np.ones(RBF_CENTRES), size=2)
    share = generator.random(len(concept))
    sums = np.cumsum(frequency, axis=1)
    chosen = np.minimum((share[:, None] > sums[population]).sum(axis=1), RBF_CENTRES - 1)
    jitter = generator.normal(0.0, RBF_SPREAD, size=(len(concept), 10))
    return centres[concept, chosen] + jitter, classes[concept, chosen]


MOVING_DISTANCE = 1.5
MOVING_ANGLES = (0.0, 70.0)


def moving(
    concept: IntArray, population: IntArray, generator: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Two round clouds, one per class, which turn about their common centre with the concept.

    Four columns, the last two without meaning. The clouds lie 1.5 deviations to either side of
    the centre; the turn by 70 degrees leaves each nearer to its own old place than to the other's,
    so that the rows show where the boundary has gone before any label does. The second population
    stretches the clouds along the boundary, which leaves the rule as it was.
    """
    rows = len(concept)
    labels = generator.integers(0, 2, size=rows)
    angle = np.radians(np.array(MOVING_ANGLES))[concept]
    features = generator.normal(size=(rows, 4))
    along = np.where(population == 1, 3.0, 1.0) * features[:, 0]
    across = features[:, 1] + np.where(labels == 1, MOVING_DISTANCE, -MOVING_DISTANCE)
    features[:, 0] = across * np.cos(angle) - along * np.sin(angle)
    features[:, 1] = across * np.sin(angle) + along * np.cos(angle)
    return features, labels


AGRAWAL_COLUMNS = (
    "salary", "commission", "age", "elevel", "car", "zipcode", "hvalue", "hyears", "loan",
)  # fmt: skip
AGRAWAL_CONCEPTS = (7, 3)
"""Function 7 (disposable income) is a plane, function 3 (age and education) is not: what was
learnt is of no use after the change."""


def agrawal(
    concept: IntArray, population: IntArray, generator: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Agrawal, Imielinski and Swami (1993), TKDE: nine columns about loans, functions 7 and 3."""
    rows = len(concept)
    share = _uniform(population, 3, generator)
    salary = 20_000.0 + 130_000.0 * share[:, 0]
    earned = 10_000.0 + 65_000.0 * generator.random(rows)
    commission = np.where(salary >= 75_000.0, 0.0, earned)
    age = np.floor(20.0 + 61.0 * share[:, 1])
    elevel = generator.integers(0, 5, size=rows)
    car = generator.integers(1, 21, size=rows)
    zipcode = generator.integers(0, 9, size=rows)
    hvalue = (9.0 - zipcode) * 100_000.0 * (0.5 + generator.random(rows))
    hyears = generator.integers(1, 31, size=rows)
    loan = 500_000.0 * share[:, 2]
    features = np.column_stack(
        [salary, commission, age, elevel, car, zipcode, hvalue, hyears, loan]
    )
    by_function = np.stack([agrawal_label(number, features) for number in AGRAWAL_CONCEPTS])
    return features, by_function[concept, np.arange(rows)]


def agrawal_label(number: int, features: FloatArray) -> IntArray:
    """1 for group A of function `number` of the paper, which has ten; here are 1, 2, 3 and 7."""
    salary, commission, age, elevel, *_, loan = features.T
    middle = (age >= 40) & (age < 60)
    if number == 1:
        group_a = ~middle
    elif number == 2:
        low = np.select([age < 40, middle], [50_000.0, 75_000.0], 25_000.0)
        group_a = (salary >= low) & (salary <= low + 50_000.0)
    elif number == 3:
        lowest = np.select([age < 40, middle], [0, 1], 2)
        highest = np.select([age < 40, middle], [1, 3], 4)
        group_a = (elevel >= lowest) & (elevel <= highest)
    elif number == 7:
        group_a = 2.0 * (salary + commission) / 3.0 - loan / 5.0 - 20_000.0 > 0.0
    else:
        raise ValueError(f"there is no function {number} here")
    labels: IntArray = group_a.astype(np.int64)
    return labels


def _numbered(columns: int) -> tuple[str, ...]:
    digits = int(math.log10(columns)) + 1
    return tuple(f"x{number:0{digits}d}" for number in range(1, columns + 1))


STREAMS: dict[str, tuple[tuple[str, ...], Draw]] = {
    "agrawal": (AGRAWAL_COLUMNS, agrawal),
    "hyperplane": (_numbered(10), hyperplane),
    "moving": (_numbered(4), moving),
    "rbf": (_numbered(10), rbf),
    "sea": (_numbered(3), sea),
}


PERIOD_ROWS = 4000
"""Rows of one round of a moving class: with labels 2,000 rows late every class stands where the
other one was, with 500 rows it has gone an eighth of its round."""
CLOUD_DISTANCE = 4.0
"""Between the centres of two classes, in deviations of a cloud: the best rule errs in 2.3 %."""

READING_NOISE = 0.5

Move: TypeAlias = Callable[[IntArray, np.random.Generator], FloatArray]
"""(row numbers, generator) -> centres, ``(rows, 2 classes, clouds per class, dimensions)``."""


def generate_moving(
    name: str, rows: int, generator: np.random.Generator, missing: float = 0.0
) -> Stream:
    """A stream of clouds by name: ``crossing``, ``priors``, ``rare``, ``rotating`` or ``walking``.

    A row takes its class by the share of that moment, one of its class's clouds at random, and its
    place from that cloud, which is round with deviation 1. Its columns are readings of the place,
    each with an error of its own of deviation 0.5. `missing` is the share of readings that are not
    there, at random; they are NaN. There is one concept number: nothing ever jumps.

    >>> stream = generate_moving("rotating", 1000, np.random.default_rng(1), missing=0.5)
    >>> stream.features.shape, round(float(np.isnan(stream.features).mean()), 1)
    ((1000, 6), 0.5)
    """
    readings, move, share = MOVING[name]
    row = np.arange(rows)
    centres = move(row, generator)
    labels = (generator.random(rows) < share(row)).astype(np.int64)
    cloud = generator.integers(0, centres.shape[2], size=rows)
    place = centres[row, labels, cloud]
    place = place + generator.normal(size=place.shape)
    features = place @ readings
    features += READING_NOISE * generator.normal(size=features.shape)
    features[generator.random(features.shape) < missing] = np.nan
    names = _numbered(features.shape[1])
    return Stream(names, features, labels, np.zeros(rows, dtype=np.int64))


def _phase(row: IntArray) -> FloatArray:
    return 2.0 * np.pi * row / PERIOD_ROWS


def rotating(row: IntArray, generator: np.random.Generator) -> FloatArray:
    """Two clouds face each other on a circle and go round it."""
    side = CLOUD_DISTANCE / 2.0 * np.stack([np.cos(_phase(row)), np.sin(_phase(row))], axis=1)
    return np.stack([-side, side], axis=1)[:, :, None, :]


def crossing(row: IntArray, generator: np.random.Generator) -> FloatArray:
    """Two clouds go to and fro along lines that cross, a quarter of a round apart.

    Each passes the crossing when the other one is at an end of its line, so that the same place
    belongs to one class and later to the other, and the distance of the two is always the same.
    """
    centres = np.zeros((len(row), 2, 1, 2))
    centres[:, 0, 0, 0] = CLOUD_DISTANCE * np.cos(_phase(row))
    centres[:, 1, 0, 1] = CLOUD_DISTANCE * np.sin(_phase(row))
    return centres


WALK_SPREAD = 3.0
WALK_ROWS = 2000


def walking(row: IntArray, generator: np.random.Generator) -> FloatArray:
    """Two clouds per class in five dimensions, each on a random walk that is pulled to the middle.

    In every dimension the places of a cloud have deviation 3 and a memory of 2,000 rows. Nothing
    keeps two clouds apart: they are mostly far from each other, and may meet by chance.
    """
    keep = math.exp(-1.0 / WALK_ROWS)
    walk = WALK_SPREAD * generator.normal(size=(len(row), 20))
    walk[1:] *= math.sqrt(1.0 - keep * keep)
    for earlier, later in pairwise(walk):
        later += keep * earlier
    return walk.reshape(len(row), 2, 2, 5)


def standing(row: IntArray, generator: np.random.Generator) -> FloatArray:
    """Two clouds that stay, half as far apart as those of the other streams."""
    centres = np.zeros((len(row), 2, 1, 2))
    centres[:, 1, 0, 0] = CLOUD_DISTANCE / 2.0
    return centres


def _half(row: IntArray) -> FloatArray:
    return np.full(len(row), 0.5)


def _swinging(row: IntArray) -> FloatArray:
    """The share of positives swings between 0.1 and 0.9."""
    share: FloatArray = 0.5 + 0.4 * np.sin(_phase(row))
    return share


def _rare(row: IntArray) -> FloatArray:
    """One in a hundred is positive."""
    return np.full(len(row), 0.01)


_ANGLES = np.pi * np.arange(6) / 6
_DIRECTIONS = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)])
"""A place in the plane is read along six directions, 30 degrees apart: shape (2, 6)."""

MOVING: dict[str, tuple[FloatArray, Move, Callable[[IntArray], FloatArray]]] = {
    "crossing": (_DIRECTIONS, crossing, _half),
    "priors": (_DIRECTIONS, standing, _swinging),
    "rare": (_DIRECTIONS, standing, _rare),
    "rotating": (_DIRECTIONS, rotating, _half),
    "walking": (np.eye(5), walking, _half),
}
"""By name: how a place is read, the centres of the clouds, the share of positives at each row."""
