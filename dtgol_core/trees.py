"""Residual trees as compiled loops over their arrays: answering, counting labels, growing.

`dtgol_core.experts.forest` has the formula, the state and its checks. What grows is spread over
labels: `learn` goes on from where `numbers` and `stack` say. One long file, for the loops
call each other with the same arrays.
"""

import numpy as np
import numpy.typing as npt

from dtgol_core import bayes
from dtgol_core.compiled import compiled, in_place
from dtgol_core.elementary import exp, sigmoid
from dtgol_core.types import BoolArray, FloatArray, IntArray, SingleArray, design

ShortArray = npt.NDArray[np.int16]
LabelArray = npt.NDArray[np.int8]

TREES = 32
RING = 1024
RING_MIN = 64
RING_SPARE = 16
"""Numbers between one column of the ring and the next. Without them a power of 2 would lie between
the values of a row, and all of them in the same places of the processor's caches."""
ROWS = 960
"""Rows of the ring that a tree learns from; the rest of the ring fills up while it grows."""
AGE = 400.0
"""A row counts exp(−age/AGE), its age in labels."""
DRAWS = 12
SIDE_ROWS_MIN = 3
DEPTH = 14
RIDGE = 0.3
GAIN_MIN = 1e-9
"""By more than this a split must be better than none and than those before it: of two that part the
rows equally well the first wins, and rounding decides nothing."""
RANGE_MIN = 1e-9
CURVATURE_MIN = 1e-3
LOGIT_MAX = 8.0
LABELS_PER_TREE = 48
VISITS = ROWS * DRAWS * DEPTH // LABELS_PER_TREE
"""Row visits per label: the largest tree is finished before the ring overwrites one of its rows."""
LEAVES = ROWS // SIDE_ROWS_MIN
NODES = 2 * LEAVES - 1
NODES_PER_LABEL = 2 * (VISITS // (DRAWS * 2 * SIDE_ROWS_MIN) + 1)
"""So many nodes at most are added with one label: a split costs its visits."""
LEAF = -1
OPEN = -1
"""In place of a leaf's number: the node waits on the stack."""
ERASED = -1
"""In place of the step of a row."""
GROWING = TREES
"""The row of the arrays of trees in which one grows."""
MEMORY = 0.9999
NUMBERS = range(9)
ON_STACK, NODE_COUNT, LEAF_COUNT, ROW_COUNT, BEGAN, DRAW_COUNT, CREDIT, LABELS, FINISHED = NUMBERS
"""Places in `Growth.numbers`; BEGAN is the count of labels at which the tree began. The last two
are those of the forest: labels learnt, trees finished."""


@in_place
def _uniform(seed: int, counter: int) -> float:
    """A number in [0, 1) by SplitMix64 of seed and counter."""
    mixed = np.uint64(seed) * np.uint64(0x2545F4914F6CDD1D) + np.uint64(counter)
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) / 9007199254740992.0


@in_place
def _step(
    feature: ShortArray, threshold: SingleArray, child: ShortArray, u: FloatArray, node: int
) -> int:
    """The child of a node that a row goes to, or the node itself if it is a leaf; u[0] is the
    constant, with which a leaf's feature -1 is compared."""
    split = int(feature[node])
    next_node = int(child[node]) + (0 if u[split + 1] <= threshold[node] else 1)
    return next_node if split >= 0 else node


@in_place
def _residual(
    feature: ShortArray,
    threshold: SingleArray,
    child: ShortArray,
    sums: FloatArray,
    trees: int,
    u: FloatArray,
    leaves: IntArray,
) -> float:
    """The mean value of the leaves of a row, 0 without a tree; `leaves` becomes their places.

    Four trees side by side: a way through one is a chain of loads that wait for each other. The
    last four overlap the ones before if the trees are no multiple of four.
    """
    if trees < 4:
        for tree in range(trees):
            node, before = 0, -1
            while node != before:
                before = node
                node = _step(feature[tree], threshold[tree], child[tree], u, node)
            leaves[tree] = child[tree, node]
    else:
        for first in range(0, trees, 4):
            t = min(first, trees - 4)
            a, b, c, d, moves = 0, 0, 0, 0, True
            while moves:
                to_a = _step(feature[t], threshold[t], child[t], u, a)
                to_b = _step(feature[t + 1], threshold[t + 1], child[t + 1], u, b)
                to_c = _step(feature[t + 2], threshold[t + 2], child[t + 2], u, c)
                to_d = _step(feature[t + 3], threshold[t + 3], child[t + 3], u, d)
                moves = ((to_a ^ a) | (to_b ^ b) | (to_c ^ c) | (to_d ^ d)) != 0
                a, b, c, d = to_a, to_b, to_c, to_d
            leaves[t], leaves[t + 1] = child[t, a], child[t + 1, b]
            leaves[t + 2], leaves[t + 3] = child[t + 2, c], child[t + 3, d]
    total = 0.0
    for tree in range(trees):
        total += sums[tree, leaves[tree], 0] / (sums[tree, leaves[tree], 1] + RIDGE)
    return total / trees if trees else 0.0


@compiled
def score(
    table: FloatArray,
    feature: ShortArray,
    threshold: SingleArray,
    child: ShortArray,
    sums: FloatArray,
    numbers: IntArray,
    spaces: FloatArray,
    scores: SingleArray,
) -> float:
    """Regression and trees together."""
    u, leaves = np.empty(table.shape[1]), np.empty(TREES, dtype=np.int64)
    design(spaces, scores, u)
    linear = min(max(bayes.score(table, u), -LOGIT_MAX), LOGIT_MAX)
    trees = min(numbers[FINISHED], TREES)
    return sigmoid(linear + _residual(feature, threshold, child, sums, trees, u, leaves))


@compiled
def learn(
    table: FloatArray,
    feature: ShortArray,
    threshold: SingleArray,
    child: ShortArray,
    sums: FloatArray,
    numbers: IntArray,
    spaces: FloatArray,
    scores: SingleArray,
    nodes: IntArray,
    rows: SingleArray,
    labels: LabelArray,
    steps: IntArray,
    stack: IntArray,
    slots: ShortArray,
    residuals: FloatArray,
    step: int,
    label: int,
) -> float:
    """Leaves, regression and ring take in a label, the growing tree goes on; the answer before."""
    u, leaves = np.empty(table.shape[1]), np.empty(TREES, dtype=np.int64)
    design(spaces, scores, u)
    linear = min(max(bayes.score(table, u), -LOGIT_MAX), LOGIT_MAX)
    trees = min(numbers[FINISHED], TREES)
    answer = sigmoid(linear + _residual(feature, threshold, child, sums, trees, u, leaves))
    p = sigmoid(linear)
    for tree in range(trees):
        sums[tree, leaves[tree], 0] += label - p
        sums[tree, leaves[tree], 1] += p * (1.0 - p)
    bayes.learn(table, MEMORY, u, label)
    slot = numbers[LABELS] % RING
    for column in range(len(rows)):
        rows[column, slot] = u[column + 1]
    labels[slot], steps[slot] = label, step
    numbers[LABELS] += 1
    growing = feature[GROWING], threshold[GROWING], child[GROWING], sums[GROWING]
    mean = table[bayes.MEAN]
    ring = rows, labels, steps
    if _grow(*growing, *ring, mean, numbers, stack, slots, residuals[0], residuals[1]):
        _catch_up(*growing, *ring, numbers[BEGAN], numbers[LABELS], mean)
        tree, count = numbers[FINISHED] % TREES, numbers[NODE_COUNT]
        nodes[tree] = count
        feature[tree, :count] = feature[GROWING, :count]
        threshold[tree, :count] = threshold[GROWING, :count]
        child[tree, :count] = child[GROWING, :count]
        sums[tree, : numbers[LEAF_COUNT]] = sums[GROWING, : numbers[LEAF_COUNT]]
        numbers[FINISHED] += 1
    return answer


@compiled
def _grow(
    features: ShortArray,
    thresholds: SingleArray,
    children: ShortArray,
    sums: FloatArray,
    rows: SingleArray,
    labels: LabelArray,
    steps: IntArray,
    mean: FloatArray,
    numbers: IntArray,
    stack: IntArray,
    slots: ShortArray,
    gradient: FloatArray,
    curvature: FloatArray,
) -> bool:
    """Spend the visits of one label on the growing tree; whether no node of it is left open."""
    numbers[CREDIT] = min(numbers[CREDIT] + VISITS, VISITS)
    labels_learnt = numbers[LABELS]
    if labels_learnt < 2 * SIDE_ROWS_MIN or len(rows) == 0:
        return False
    values, drawn = np.empty((DRAWS, ROWS), dtype=np.float32), np.empty((2, DRAWS), dtype=np.int64)
    threshold, left_sums = np.empty(DRAWS, dtype=np.float32), np.empty((2, DRAWS))
    while numbers[CREDIT] > 0:
        if numbers[ON_STACK] == 0:
            _begin(
                rows, labels, steps, labels_learnt, mean, numbers, stack, slots, gradient, curvature
            )
            features[0], thresholds[0], children[0] = LEAF, 0.0, OPEN
        numbers[ON_STACK] -= 1
        entry = numbers[ON_STACK]
        first, end, node, depth = stack[entry, 0], stack[entry, 1], stack[entry, 2], stack[entry, 3]
        total, total_curvature = 0.0, 0.0
        for position in range(first, end):
            total += gradient[position]
            total_curvature += curvature[position]
        split, at = -1, np.float32(0.0)
        if end - first >= 2 * SIDE_ROWS_MIN and depth < DEPTH:
            numbers[CREDIT] -= DRAWS * (end - first)
            split, at = _best_split(
                rows,
                slots[first:end],
                gradient[first:end],
                curvature[first:end],
                total,
                total_curvature,
                numbers,
                values,
                drawn,
                threshold,
                left_sums,
            )
        if split < 0:
            leaf = numbers[LEAF_COUNT]
            children[node] = leaf
            sums[leaf, 0], sums[leaf, 1] = total, total_curvature
            numbers[LEAF_COUNT] += 1
        else:
            middle = first + _part(
                rows[split], at, slots[first:end], gradient[first:end], curvature[first:end]
            )
            left = numbers[NODE_COUNT]
            features[node], thresholds[node], children[node] = split, at, left
            for side in range(2):
                features[left + side], thresholds[left + side] = LEAF, 0.0
                children[left + side] = OPEN
                stack[entry + side, 0] = first if side == 0 else middle
                stack[entry + side, 1] = middle if side == 0 else end
                stack[entry + side, 2] = left + side
                stack[entry + side, 3] = depth + 1
            numbers[NODE_COUNT] += 2
            numbers[ON_STACK] += 2
        if numbers[ON_STACK] == 0:
            return True
    return False


@in_place
def _offset(logit: float) -> float:
    """The probability by the regression's mean alone, clipped."""
    return sigmoid(min(max(logit, -LOGIT_MAX), LOGIT_MAX))


@compiled
def _begin(
    rows: SingleArray,
    labels: LabelArray,
    steps: IntArray,
    labels_learnt: int,
    mean: FloatArray,
    numbers: IntArray,
    stack: IntArray,
    slots: ShortArray,
    gradient: FloatArray,
    curvature: FloatArray,
) -> None:
    """Put the newest rows in order of age with their residuals, and the root on the stack.

    Erased rows, of step `ERASED`, are left out.
    """
    count = 0
    filled = min(labels_learnt, RING)
    logits = np.full(filled, mean[0])
    for column in range(len(rows)):
        values, weight = rows[column], mean[column + 1]
        for slot in range(filled):
            logits[slot] += weight * values[slot]
    for age in range(min(labels_learnt, ROWS)):
        slot = (labels_learnt - 1 - age) % RING
        p, weight = _offset(logits[slot]), exp(-age / AGE)
        slots[count] = slot
        gradient[count] = weight * (labels[slot] - p)
        curvature[count] = weight * max(p * (1.0 - p), CURVATURE_MIN)
        count += steps[slot] != ERASED
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, count, 0, 0
    numbers[ON_STACK], numbers[NODE_COUNT], numbers[LEAF_COUNT] = 1, 1, 0
    numbers[ROW_COUNT], numbers[BEGAN], numbers[DRAW_COUNT] = count, labels_learnt, 0
    numbers[CREDIT] -= count


@in_place
def _best_split(
    rows: SingleArray,
    slots: ShortArray,
    gradient: FloatArray,
    curvature: FloatArray,
    total: float,
    total_curvature: float,
    numbers: IntArray,
    values: SingleArray,
    drawn: IntArray,
    threshold: SingleArray,
    left_sums: FloatArray,
) -> tuple[int, np.float32]:
    """The best of the draws for the rows at `slots`: feature, or -1, and threshold.

    The last four arrays are work space.
    """
    count, split, at = len(slots), -1, np.float32(0.0)
    best = total * total / (total_curvature + RIDGE)
    feature, below, left, left_curvature = drawn[0], drawn[1], left_sums[0], left_sums[1]
    seed, counter = numbers[FINISHED] + 1, numbers[DRAW_COUNT]
    numbers[DRAW_COUNT] += 2 * DRAWS
    for draw in range(DRAWS):
        feature[draw] = int(_uniform(seed, counter + 2 * draw) * len(rows))
    for draw in range(0, DRAWS, 4):
        _thresholds(rows, slots, feature, draw, seed, counter, values, threshold, below)
        _left_sums(values, threshold, draw, gradient, curvature, left, left_curvature, below)
    for draw in range(DRAWS):
        if below[draw] < SIDE_ROWS_MIN or count - below[draw] < SIDE_ROWS_MIN:
            continue
        right, right_curvature = total - left[draw], total_curvature - left_curvature[draw]
        gain = left[draw] * left[draw] / (left_curvature[draw] + RIDGE)
        gain += right * right / (right_curvature + RIDGE)
        if gain > best + GAIN_MIN:
            best, split, at = gain, feature[draw], threshold[draw]
    return split, at


@in_place
def _thresholds(
    rows: SingleArray,
    slots: ShortArray,
    feature: IntArray,
    first: int,
    seed: int,
    counter: int,
    values: SingleArray,
    threshold: SingleArray,
    below: IntArray,
) -> None:
    """Values and thresholds of four draws side by side; `below` becomes 0 for one without a range
    and else 1."""
    a, b = rows[feature[first]], rows[feature[first + 1]]
    c, d = rows[feature[first + 2]], rows[feature[first + 3]]
    to_a, to_b, to_c, to_d = values[first], values[first + 1], values[first + 2], values[first + 3]
    slot = np.uint64(slots[0])
    low_a = high_a = a[slot]
    low_b = high_b = b[slot]
    low_c = high_c = c[slot]
    low_d = high_d = d[slot]
    for place in range(len(slots)):
        slot = np.uint64(slots[place])
        at_a, at_b, at_c, at_d = a[slot], b[slot], c[slot], d[slot]
        to_a[place], to_b[place], to_c[place], to_d[place] = at_a, at_b, at_c, at_d
        low_a = at_a if at_a < low_a else low_a
        low_b = at_b if at_b < low_b else low_b
        low_c = at_c if at_c < low_c else low_c
        low_d = at_d if at_d < low_d else low_d
        high_a = at_a if at_a > high_a else high_a
        high_b = at_b if at_b > high_b else high_b
        high_c = at_c if at_c > high_c else high_c
        high_d = at_d if at_d > high_d else high_d
    lows, highs = (low_a, low_b, low_c, low_d), (high_a, high_b, high_c, high_d)
    for draw in range(4):
        low, spread = lows[draw], np.float64(highs[draw]) - np.float64(lows[draw])
        share = _uniform(seed, counter + 2 * (first + draw) + 1)
        threshold[first + draw] = np.float32(low + share * spread)
        below[first + draw] = 0 if spread < RANGE_MIN else 1


@in_place
def _left_sums(
    values: SingleArray,
    threshold: SingleArray,
    first: int,
    gradient: FloatArray,
    curvature: FloatArray,
    left: FloatArray,
    left_curvature: FloatArray,
    below: IntArray,
) -> None:
    """Sums and number of the rows that go left, of four draws side by side, each in its order.

    A draw without a range comes with `below` 0 and keeps it.
    """
    a, b, c, d = values[first], values[first + 1], values[first + 2], values[first + 3]
    at_a, at_b = threshold[first], threshold[first + 1]
    at_c, at_d = threshold[first + 2], threshold[first + 3]
    sum_a = sum_b = sum_c = sum_d = 0.0
    curvature_a = curvature_b = curvature_c = curvature_d = 0.0
    in_a = in_b = in_c = in_d = 0
    for place in range(len(gradient)):
        g, h = gradient[place], curvature[place]
        sum_a += g if a[place] <= at_a else 0.0
        sum_b += g if b[place] <= at_b else 0.0
        sum_c += g if c[place] <= at_c else 0.0
        sum_d += g if d[place] <= at_d else 0.0
        curvature_a += h if a[place] <= at_a else 0.0
        curvature_b += h if b[place] <= at_b else 0.0
        curvature_c += h if c[place] <= at_c else 0.0
        curvature_d += h if d[place] <= at_d else 0.0
        in_a += a[place] <= at_a
        in_b += b[place] <= at_b
        in_c += c[place] <= at_c
        in_d += d[place] <= at_d
    left[first], left[first + 1], left[first + 2], left[first + 3] = sum_a, sum_b, sum_c, sum_d
    left_curvature[first], left_curvature[first + 1] = curvature_a, curvature_b
    left_curvature[first + 2], left_curvature[first + 3] = curvature_c, curvature_d
    below[first] *= in_a
    below[first + 1] *= in_b
    below[first + 2] *= in_c
    below[first + 3] *= in_d


@in_place
def _part(
    column: SingleArray,
    threshold: np.float32,
    slots: ShortArray,
    gradient: FloatArray,
    curvature: FloatArray,
) -> int:
    """Bring the rows that go left to the front; how many they are."""
    left, right = 0, len(slots) - 1
    while left <= right:
        if column[slots[left]] <= threshold:
            left += 1
            continue
        slots[left], slots[right] = slots[right], slots[left]
        gradient[left], gradient[right] = gradient[right], gradient[left]
        curvature[left], curvature[right] = curvature[right], curvature[left]
        right -= 1
    return left


@in_place
def _catch_up(
    feature: ShortArray,
    threshold: SingleArray,
    child: ShortArray,
    sums: FloatArray,
    rows: SingleArray,
    labels: LabelArray,
    steps: IntArray,
    began: int,
    labels_learnt: int,
    mean: FloatArray,
) -> None:
    """The leaves of a tree that is finished take in the labels learnt while it grew."""
    for number in range(began, labels_learnt):
        slot = number % RING
        if steps[slot] == ERASED:
            continue
        logit, node = mean[0], 0
        for column in range(len(rows)):
            logit += mean[column + 1] * rows[column, slot]
        while feature[node] >= 0:
            goes_left = rows[feature[node], slot] <= threshold[node]
            node = child[node] + (0 if goes_left else 1)
        p, leaf = _offset(logit), child[node]
        sums[leaf, 0] += labels[slot] - p
        sums[leaf, 1] += p * (1.0 - p)


@compiled
def path_differences(
    feature: ShortArray,
    threshold: SingleArray,
    child: ShortArray,
    leaf_sums: FloatArray,
    trees: int,
    nodes: IntArray,
    u: FloatArray,
    terms: FloatArray,
) -> None:
    """Add to the term of each split's feature how much the node's value changes there."""
    sums = np.empty((NODES, 2))
    for tree in range(trees):
        for node in range(nodes[tree] - 1, -1, -1):
            left = child[tree, node]
            if feature[tree, node] < 0:
                sums[node, 0], sums[node, 1] = leaf_sums[tree, left, 0], leaf_sums[tree, left, 1]
            else:
                sums[node, 0] = sums[left, 0] + sums[left + 1, 0]
                sums[node, 1] = sums[left, 1] + sums[left + 1, 1]
        node, value = 0, sums[0, 0] / (sums[0, 1] + RIDGE)
        while feature[tree, node] >= 0:
            term = feature[tree, node] + 1
            goes_left = u[term] <= threshold[tree, node]
            node = child[tree, node] + (0 if goes_left else 1)
            reached = sums[node, 0] / (sums[node, 1] + RIDGE)
            terms[term] += (reached - value) / trees
            value = reached


@compiled
def is_tree(
    feature: ShortArray, child: ShortArray, features: int, is_open: BoolArray, leaves: int
) -> bool:
    """Whether nodes make a tree: each but the root is the child of one before it, children lie in
    pairs, and every leaf is the end of one path. An open node has neither child nor leaf."""
    nodes, splits, ends = len(feature), 0, 0
    below, reached = np.zeros(nodes, dtype=np.bool_), np.zeros(leaves, dtype=np.bool_)
    for node in range(nodes):
        to = child[node]
        if is_open[node]:
            if feature[node] != LEAF or to != OPEN:
                return False
        elif feature[node] == LEAF:
            if to < 0 or to >= leaves or reached[to]:
                return False
            reached[to] = True
            ends += 1
        else:
            splits += 1
            inside = 0 <= feature[node] < features and node < to < nodes - 1
            if not inside or to % 2 == 0 or below[to]:
                return False
            below[to] = True
    return ends == leaves and 2 * splits + 1 == nodes
