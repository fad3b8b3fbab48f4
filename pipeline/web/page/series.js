// From the sums of blocks to the values of curves. Pure: arrays in, arrays out; null is "not known".

const SMOOTH_ROWS = 100; // a point of a curve holds at least so many predictions,
const SMOOTH_SHARE = 24; // or this fraction of all that are shown

const sum = (values) => values.reduce((a, b) => a + b, 0);
const ratio = (a, b) => (b ? a / b : null);

export function cumulative(values, start = 0) {
  let total = start;
  return values.map((value) => (total += value));
}

/** Sums over the newest blocks up to each one, as many as hold `rows` of `counts`. */
function rolling(counts, rows, ...columns) {
  let first = 0;
  let held = 0;
  return counts.map((count, at) => {
    held += count;
    while (held - counts[first] >= rows) held -= counts[first++];
    return columns.map((column) => sum(column.slice(first, at + 1)));
  });
}

export const windowRows = (counts) =>
  Math.max(SMOOTH_ROWS, Math.round(sum(counts) / SMOOTH_SHARE));

/**
 * Curves by prediction time. A point needs labels of at least a tenth of its window; the tail is
 * where fewer labels have come than is usual for the stream.
 */
export function byPrediction(blocks) {
  const { predicted, scored } = blocks;
  const rows = windowRows(predicted);
  const names = ["predicted", "scored", "errors", "naive_errors", "loss", "naive_loss", "estimated",
    "last_window", "last_known", "ones"];
  const sums = rolling(predicted, rows, ...names.map((name) => blocks[name]));
  const known = ([n, labels]) => labels >= Math.max(5, n / 10);
  const at = (column) =>
    sums.map((each) => (known(each) ? column(Object.fromEntries(names.map((n, i) => [n, each[i]]))) : null));
  const mostlyOne = 2 * sum(blocks.ones) > sum(scored);
  return {
    rows,
    x: cumulative(predicted, blocks.before),
    times: blocks.last_ms,
    accuracy: at((w) => 1 - w.errors / w.scored),
    naive: at((w) => 1 - w.naive_errors / w.scored),
    majority: at((w) => (mostlyOne ? w.ones : w.scored - w.ones) / w.scored),
    estimated: sums.map((each) => ratio(each[6], each[0])),
    lastWindow: sums.map((each) => ratio(each[7], each[8])),
    loss: at((w) => w.loss / w.scored),
    naiveLoss: at((w) => w.naive_loss / w.scored),
    tail: tailOf(predicted, scored),
  };
}

/** The newest blocks with clearly fewer labels than usual, and the share of labels in them. */
function tailOf(predicted, scored) {
  const coverage = predicted.map((count, at) => scored[at] / count);
  const usual = [...coverage].sort((a, b) => a - b)[Math.floor(0.75 * coverage.length)] ?? 0;
  let start = coverage.length;
  while (start > 0 && (usual === 0 || coverage[start - 1] < 0.9 * usual)) start -= 1;
  const count = sum(predicted.slice(start));
  return { start, count, share: ratio(sum(scored.slice(start)), count) };
}

/** Errors avoided so far, and two standard errors of that sum. */
export function gainOf(blocks) {
  const differences = blocks.naive_errors.map((naive, at) => naive - blocks.errors[at]);
  const total = cumulative(differences);
  const scored = cumulative(blocks.scored);
  const squares = cumulative(blocks.disagreed);
  const twice = total.map((gain, at) =>
    scored[at] ? 2 * Math.sqrt(Math.max(0, squares[at] - (gain * gain) / scored[at])) : null);
  const shown = (values) => values.map((value, at) => (scored[at] && blocks.scored[at] ? value : null));
  return {
    x: cumulative(blocks.predicted, blocks.before),
    total: shown(total),
    low: shown(total.map((gain, at) => gain - twice[at])),
    high: shown(total.map((gain, at) => gain + twice[at])),
    last: { gain: total.at(-1) ?? 0, twice: twice.at(-1) ?? null },
  };
}

/** Share of the known features that records lack. */
export function missingOf(blocks) {
  const rows = Math.ceil(windowRows(blocks.predicted) / 4);
  const sums = rolling(blocks.predicted, rows, blocks.observed_share, blocks.detailed);
  return {
    x: cumulative(blocks.predicted, blocks.before),
    times: blocks.last_ms,
    missing: sums.map(([observed, n]) => (n ? 1 - observed / n : null)),
  };
}

export function byArrival(blocks) {
  const rows = windowRows(blocks.scored);
  const sums = rolling(blocks.scored, rows, blocks.scored, blocks.errors, blocks.naive_errors);
  return {
    x: cumulative(blocks.scored, blocks.before),
    times: blocks.last_ms,
    accuracy: sums.map(([n, errors]) => 1 - errors / n),
    naive: sums.map(([n, , errors]) => 1 - errors / n),
  };
}

/** Mean weights by name, the heaviest at the end first; null where none are known. */
export function weightsOf(blocks, weights) {
  const rows = Math.ceil(windowRows(blocks.predicted) / 4);
  const curves = Object.entries(weights).map(([name, sums]) => ({
    name,
    values: rolling(blocks.predicted, rows, sums, blocks.detailed).map(([w, n]) => ratio(w, n)),
  }));
  curves.sort((a, b) => (b.values.at(-1) ?? 0) - (a.values.at(-1) ?? 0));
  return { x: cumulative(blocks.predicted, blocks.before), curves };
}

/** Bins of the delay, neighbours joined until there are few enough to see. */
export function delayBins({ top_ms: top, counts: [zero, one] }, most = 40) {
  const join = Math.ceil(top.length / most) || 1;
  const groups = Array.from({ length: Math.ceil(top.length / join) }, (_, at) => at * join);
  const pick = (values) => groups.map((at) => sum(values.slice(at, at + join)));
  return {
    top: groups.map((at) => top[Math.min(at + join, top.length) - 1]),
    zero: pick(zero),
    one: pick(one),
  };
}

/** Mean forecast against share of label 1, for every tenth that has predictions. */
export function calibrationOf(bins) {
  const used = bins.filter(([count]) => count > 0);
  const count = sum(used.map(([n]) => n));
  const error = sum(used.map(([, p, y]) => Math.abs(p - y)));
  return {
    p: used.map(([n, p]) => p / n),
    y: used.map(([n, , y]) => y / n),
    error: ratio(error, count),
    count,
  };
}
