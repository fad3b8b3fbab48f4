"""Mixtures of normal densities for both classes, as compiled loops over their arrays.

A mixture has four components per class with one covariance for all of them. It is one entry each of
three arrays, whose first index says which mixture it is:

- ``numbers (mixtures, 18)``: the weights ``n_k`` of the eight components, their constants
  ``½ m_k'P m_k``, the mass of the scatter, how many vectors were absorbed.
- ``means (mixtures, 8, columns)``.
- ``matrices (mixtures, 2, columns, block)``: scatter and, as of the last refresh, precision P. Row
  i has the columns of i's own block of 48.

The formulas are in docs/learner.md. With ``y = Px`` the score of a component is ``m_k·y`` less its
constant; when its mean takes a step γ towards x the constant follows by ``m_k·y`` and ``x·y``, so
neither ``P m_k`` nor its constant is computed anew between refreshes.
"""

import math

import numpy as np

from dtgol_core.compiled import compiled, fma, in_place
from dtgol_core.elementary import exp, log, sigmoid
from dtgol_core.types import FloatArray, SingleArray

PER_CLASS = 4
COMPONENTS = 2 * PER_CLASS
"""Those of class 0 first."""
HALF, MASS, ABSORBED = COMPONENTS, 2 * COMPONENTS, 2 * COMPONENTS + 1
"""Places in the numbers of a mixture: the first of the constants, the mass, the count. The weights
come first."""
NUMBERS = ABSORBED + 1
SCATTER, PRECISION = range(2)
BLOCK = 48
"""Neighbouring columns whose covariance is kept, so that the cost is linear beyond. Blocks of 32
would be cheaper, but tables of 34 and 36 columns lose (ionosphere: .21 to .29 CER)."""
PRIOR_MASS, PRIOR_VARIANCE, RIDGE = 5.0, 0.5, 1e-3
# Written out, so that no bit depends on a C library.
LABEL_DECAY, WAITING_DECAY = 0.9900498337491681, 0.9834714538216175
"""exp(−1/100) and exp(−1/60): what stays of the weights with each vector."""
LABEL_SCATTER_DECAY, WAITING_SCATTER_DECAY = 0.9966722160545233, 0.9944598480048967
"""The same of the scatter, three times as long: exp(−1/300) and exp(−1/180)."""
REFRESH = 20
VALUE_MAX, LOGIT_MAX = 5.0, 8.0
WEIGHT_MIN = 1e-9
SHARE_MIN = 8.315287191035679e-07
"""exp(−14)."""
CLASS_SHARE_MIN = 1e-6
SCATTER_SHARE_MIN = 1e-3
LIGHT, RESET = 0.02, 0.1
"""A component below so much of its class' mean weight is set anew, at so much of it."""
APART = 0.01
"""Squared distance from all others of its class at which a component may be placed."""
X, PRODUCT, DIFFERENCES = range(3)
"""Rows of the work space of `new_vectors`: the vector, Px, and from the last on its differences
from the means."""
SHARE, DOT, RATE, FACTOR = range(4)
"""Rows of the work space of `new_shares`: shares in the class, m_k·y, rates of the means, factors
of the differences in the scatter."""


@compiled
def new_vectors(columns: int) -> FloatArray:
    """Work space for numbers by column."""
    return np.zeros((DIFFERENCES + COMPONENTS, columns))


@compiled
def new_shares() -> FloatArray:
    """Work space for numbers by component."""
    return np.zeros((FACTOR + 1, COMPONENTS))


@in_place
def load(row: SingleArray, x: FloatArray) -> None:
    """A row as numbers within ±5; what is no number is 0."""
    for column in range(len(x)):
        value = float(row[column])
        value = value if value == value else 0.0
        value = value if value < VALUE_MAX else VALUE_MAX
        x[column] = value if value > -VALUE_MAX else -VALUE_MAX


@in_place
def multiply(precision: FloatArray, x: FloatArray, product: FloatArray) -> None:
    """Px, block by block; four rows at a time, each sum in the order of rows."""
    columns = len(x)
    for column in range(columns):
        product[column] = 0.0
    for first in range(0, columns, BLOCK):
        part, values = product[first : first + BLOCK], x[first : first + BLOCK]
        block, size = precision[first : first + BLOCK], min(BLOCK, columns - first)
        fours = size // 4 * 4
        for i in range(0, fours, 4):
            a, b, c, d = block[i], block[i + 1], block[i + 2], block[i + 3]
            at_a, at_b, at_c, at_d = values[i], values[i + 1], values[i + 2], values[i + 3]
            for j in range(size):
                total = fma(b[j], at_b, fma(a[j], at_a, part[j]))
                part[j] = fma(d[j], at_d, fma(c[j], at_c, total))
        for i in range(fours, size):
            row, value = block[i], values[i]
            for j in range(size):
                part[j] = fma(row[j], value, part[j])


@in_place
def posterior(
    prior: float,
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    vectors: FloatArray,
    shares: FloatArray,
) -> float:
    """The log-odds of class 1 for ``vectors[X]``, `prior` those without it.

    The other work rows are filled as they say.
    """
    product, dots, share = vectors[PRODUCT], shares[DOT], shares[SHARE]
    multiply(matrices[PRECISION], vectors[X], product)
    for first in range(0, COMPONENTS, 4):
        a, b, c, d = means[first], means[first + 1], means[first + 2], means[first + 3]
        sum_a = sum_b = sum_c = sum_d = 0.0
        for column in range(len(product)):
            value = product[column]
            sum_a = fma(a[column], value, sum_a)
            sum_b = fma(b[column], value, sum_b)
            sum_c = fma(c[column], value, sum_c)
            sum_d = fma(d[column], value, sum_d)
        dots[first], dots[first + 1], dots[first + 2], dots[first + 3] = sum_a, sum_b, sum_c, sum_d
    constant = numbers[HALF : HALF + COMPONENTS]
    for k in range(COMPONENTS):
        share[k] = dots[k] - constant[k]
    top, other = -math.inf, -math.inf
    for k in range(PER_CLASS):
        score = share[k] if numbers[k] > 0.0 else -math.inf
        top = score if score > top else top
        score = share[PER_CLASS + k] if numbers[PER_CLASS + k] > 0.0 else -math.inf
        other = score if score > other else other
    for k in range(COMPONENTS):
        below = share[k] - (top if k < PER_CLASS else other)
        # A component without weight may be above the top; its share is 0 in any case.
        share[k] = numbers[k] * exp(below if below < 0.0 else 0.0)
    total, total_other, held, held_other = 0.0, 0.0, 0.0, 0.0
    for k in range(PER_CLASS):
        total += share[k]
        held += numbers[k]
        total_other += share[PER_CLASS + k]
        held_other += numbers[PER_CLASS + k]
    for k in range(COMPONENTS):
        each = total if k < PER_CLASS else total_other
        share[k] = share[k] / each if each > 0.0 else 0.0
    if held > 0.0 and held_other > 0.0:
        return prior + (other - top) + log(total_other * held / (held_other * total))
    return prior


@in_place
def absorb(
    p: float,
    decay: float,
    scatter_decay: float,
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    vectors: FloatArray,
    shares: FloatArray,
) -> None:
    """The mixture takes in ``vectors[X]``, of class 1 with probability p, by ``shares[SHARE]``.

    The other work rows are as `posterior` has left them.
    """
    x, product, columns = vectors[X], vectors[PRODUCT], vectors.shape[1]
    share, dots, rates, factors = shares[SHARE], shares[DOT], shares[RATE], shares[FACTOR]
    for k in range(COMPONENTS):
        weight = numbers[k] * decay
        weight = weight if weight >= WEIGHT_MIN else 0.0
        q = p if k >= PER_CLASS else 1.0 - p
        gained = q * share[k] if (q >= CLASS_SHARE_MIN) & (share[k] >= SHARE_MIN) else 0.0
        weight += gained
        numbers[k] = weight
        share[k] = gained
        rates[k] = gained / weight if gained > 0.0 else 0.0
    count = 0
    for k in range(COMPONENTS):
        factors[k] = 0.0
    for k in range(COMPONENTS):
        if rates[k] > 0.0:
            difference, centre, rate = vectors[DIFFERENCES + count], means[k], rates[k]
            for column in range(columns):
                difference[column] = x[column] - centre[column]
                centre[column] = fma(rate, difference[column], centre[column])
            if share[k] > SCATTER_SHARE_MIN:
                factors[count] = share[k] * (1.0 - rate)
                count += 1
    # There is one at least, for the shares add up: the scatter always decays.
    _add_squares(matrices[SCATTER], scatter_decay, factors, vectors[DIFFERENCES:], count)
    square = 0.0
    for column in range(columns):
        square = fma(x[column], product[column], square)
    constant = numbers[HALF : HALF + COMPONENTS]
    for k in range(COMPONENTS):
        stays = 1.0 - rates[k]
        moved = fma(0.5 * rates[k], square, stays * dots[k])
        constant[k] = fma(rates[k], moved, stays * stays * constant[k])
    numbers[MASS] = fma(scatter_decay, numbers[MASS], 1.0)
    numbers[ABSORBED] += 1.0


@in_place
def _add_squares(
    scatter: FloatArray, keep: float, factors: FloatArray, differences: FloatArray, count: int
) -> None:
    """``keep·S`` plus ``factor·δδ'`` of each of the first `count`, in their order.

    Inside the blocks. Four at a time, of which the last may have the factor 0; one or two that are
    left by themselves.
    """
    columns, place = differences.shape[1], 0
    while place < count:
        four = count - place > 2
        for first in range(0, columns, BLOCK):
            end = min(first + BLOCK, columns)
            a, by_a = differences[place, first:end], factors[place]
            if not four:
                for i in range(len(a)):
                    row, scaled = scatter[first + i], by_a * a[i]
                    for j in range(len(a)):
                        row[j] = fma(scaled, a[j], keep * row[j])
                continue
            b, c = differences[place + 1, first:end], differences[place + 2, first:end]
            d = differences[place + 3, first:end]
            by_b, by_c, by_d = factors[place + 1], factors[place + 2], factors[place + 3]
            for i in range(len(a)):
                row = scatter[first + i]
                at_a, at_b, at_c, at_d = by_a * a[i], by_b * b[i], by_c * c[i], by_d * d[i]
                for j in range(len(a)):
                    total = fma(at_b, b[j], fma(at_a, a[j], keep * row[j]))
                    row[j] = fma(at_d, d[j], fma(at_c, c[j], total))
        place += 4 if four else 1
        keep = 1.0


@in_place
def refresh(
    numbers: FloatArray, means: FloatArray, matrices: FloatArray, vectors: FloatArray
) -> None:
    """Precision from scatter, block by block, by Gauss and Jordan; the constants from it.

    Rows of the work space other than X are overwritten.
    """
    columns, inverse_total = means.shape[1], 1.0 / (numbers[MASS] + PRIOR_MASS)
    constant, pulled = numbers[HALF : HALF + COMPONENTS], vectors[PRODUCT]
    for first in range(0, columns, BLOCK):
        size = min(BLOCK, columns - first)
        block = matrices[PRECISION, first : first + size]
        spread = matrices[SCATTER, first : first + size]
        for i in range(size):
            row, from_row = block[i], spread[i]
            for j in range(size):
                row[j] = from_row[j] * inverse_total
            row[i] += PRIOR_MASS * PRIOR_VARIANCE * inverse_total + RIDGE
        _invert(block, size, vectors[DIFFERENCES])
    for k in range(COMPONENTS):
        centre, total = means[k], 0.0
        multiply(matrices[PRECISION], centre, pulled)
        for column in range(columns):
            total = fma(centre[column], pulled[column], total)
        constant[k] = 0.5 * total


@in_place
def _invert(block: FloatArray, size: int, scaled: FloatArray) -> None:
    """The inverse of a positive matrix, in its place; four rows at a time, `scaled` for a row."""
    fours = size // 4 * 4
    for pivot in range(size):
        above = block[pivot]
        inverse = 1.0 / above[pivot]
        for j in range(size):
            scaled[j] = above[j] * inverse
        scaled[pivot] = inverse
        for i in range(0, fours, 4):
            a, b, c, d = block[i], block[i + 1], block[i + 2], block[i + 3]
            by_a, by_b, by_c, by_d = -a[pivot], -b[pivot], -c[pivot], -d[pivot]
            a[pivot] = b[pivot] = c[pivot] = d[pivot] = 0.0
            for j in range(size):
                a[j] = fma(by_a, scaled[j], a[j])
                b[j] = fma(by_b, scaled[j], b[j])
                c[j] = fma(by_c, scaled[j], c[j])
                d[j] = fma(by_d, scaled[j], d[j])
        for i in range(fours, size):
            row = block[i]
            factor = -row[pivot]
            row[pivot] = 0.0
            for j in range(size):
                row[j] = fma(factor, scaled[j], row[j])
        for j in range(size):
            above[j] = scaled[j]


@in_place
def follow(
    row: SingleArray,
    prior: float,
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    vectors: FloatArray,
    shares: FloatArray,
) -> float:
    """A mixture absorbs a row under its own posterior; the answer to the row before that."""
    load(row, vectors[X])
    logit = posterior(prior, numbers, means, matrices, vectors, shares)
    p = sigmoid(logit)
    absorb(p, WAITING_DECAY, WAITING_SCATTER_DECAY, numbers, means, matrices, vectors, shares)
    if numbers[ABSORBED] % REFRESH == 0.0:
        refresh(numbers, means, matrices, vectors)
    return p if abs(logit) <= LOGIT_MAX else sigmoid(LOGIT_MAX if logit > 0.0 else -LOGIT_MAX)


@in_place
def answer(
    row: SingleArray,
    prior: float,
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    vectors: FloatArray,
    shares: FloatArray,
) -> float:
    """The probability of class 1 for a row."""
    load(row, vectors[X])
    logit = posterior(prior, numbers, means, matrices, vectors, shares)
    return sigmoid(min(max(logit, -LOGIT_MAX), LOGIT_MAX))


@in_place
def learn(
    row: SingleArray,
    label: int,
    prior: float,
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    vectors: FloatArray,
    shares: FloatArray,
) -> None:
    """A mixture absorbs a row under its true label; a component may be placed there."""
    x, share, first = vectors[X], shares[SHARE], label * PER_CLASS
    load(row, x)
    posterior(prior, numbers, means, matrices, vectors, shares)
    apart, lightest = _is_apart(x, first, numbers, means), _lightest(first, numbers)
    placed = apart and numbers[lightest] == 0.0
    if placed:
        for k in range(COMPONENTS):
            share[k] = 1.0 if k == lightest else 0.0
    absorb(
        float(label),
        LABEL_DECAY,
        LABEL_SCATTER_DECAY,
        numbers,
        means,
        matrices,
        vectors,
        shares,
    )
    if apart and not placed:
        lightest, total = _lightest(first, numbers), 0.0
        for k in range(first, first + PER_CLASS):
            total += numbers[k]
        if numbers[lightest] < LIGHT * total / PER_CLASS:
            placed = True
            numbers[lightest] = RESET * total / PER_CLASS
            for column in range(len(x)):
                means[lightest, column] = x[column]
    if placed or numbers[ABSORBED] < REFRESH or numbers[ABSORBED] % REFRESH == 0.0:
        refresh(numbers, means, matrices, vectors)


@in_place
def _is_apart(x: FloatArray, first: int, numbers: FloatArray, means: FloatArray) -> bool:
    """Whether a component of a class may be placed here: no other one of it is where x is.

    Two components in one place stay together but for rounding, which would decide what they become.
    """
    for k in range(first, first + PER_CLASS):
        if numbers[k] > 0.0:
            centre, squares = means[k], 0.0
            for column in range(len(x)):
                difference = x[column] - centre[column]
                squares = fma(difference, difference, squares)
            if squares < APART:
                return False
    return True


@in_place
def _lightest(first: int, numbers: FloatArray) -> int:
    """The component of a class with the least weight, the first of equals."""
    lightest = first
    for k in range(first + 1, first + PER_CLASS):
        if numbers[k] < numbers[lightest]:
            lightest = k
    return lightest


@compiled
def contributions(
    row: SingleArray,
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    moved: FloatArray,
) -> None:
    """Add the parts of the classes' mean scores by column, weighed by the components' shares."""
    columns = means.shape[1]
    vectors, shares = new_vectors(columns), new_shares()
    x, share = vectors[X], shares[SHARE]
    load(row, x)
    posterior(0.0, numbers, means, matrices, vectors, shares)
    if share[:PER_CLASS].sum() == 0.0 or share[PER_CLASS:].sum() == 0.0:
        return  # the prior alone answers while a class is unknown
    pulled = np.empty(columns)
    for k in range(COMPONENTS):
        centre = means[k]
        multiply(matrices[PRECISION], centre, pulled)
        for column in range(columns):
            part = share[k] * pulled[column] * (x[column] - 0.5 * centre[column])
            moved[column] += part if k >= PER_CLASS else -part
