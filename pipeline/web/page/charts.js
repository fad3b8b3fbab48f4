// The curves of one stream, drawn by uPlot; colours come from style.css and follow its theme.

import { duration, element, moment, number as digits, points, share as percentage } from "./format.js";
import {
  byArrival, byPrediction, calibrationOf, delayBins, gainOf, missingOf, weightsOf,
} from "./series.js";

const { bars } = window.uPlot.paths;
const unlessNull = (format) => (value, ...more) => (value == null ? "" : format(value, ...more));
const number = unlessNull(digits); // a legend without a cursor shows no values
const share = unlessNull(percentage);
const EXPERT_COLOURS = 8;
const HEIGHT = { wide: 280, usual: 220 };

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const small = () => `12px ${getComputedStyle(document.body).fontFamily}`;

function axis(more = {}) {
  return {
    stroke: colour("quiet"), font: small(), size: 48,
    grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1, size: 4 },
    ...more,
  };
}

const percent = { values: (_, splits) => splits.map((value) => share(value, 0)) };
const shareLine = (label, name, more = {}) => ({
  label, stroke: colour(name), width: 2, points: { show: false },
  value: (_, value) => share(value), ...more,
});

/** Ticks by count of records, and below each the event time there. */
function countAxis(chart) {
  return axis({
    size: 44,
    values: (_, splits) => splits.map((value) => {
      const { x, times } = chart;
      if (!times?.length) return number(value);
      const at = Math.max(0, x.findIndex((each) => each >= value));
      return `${number(value)}\n${moment(times[at], times.at(-1) - times[0])}`;
    }),
  });
}

export const MARKS = {
  started: { colour: "mark-start", words: "started" },
  stopped: { colour: "mark-start", words: "stopped" },
  config: { colour: "mark-config", words: "configuration changed" },
  parked: { colour: "bad", words: "parked" },
  crashed: { colour: "bad", words: "crashed" },
  "snapshot-failed": { colour: "bad", words: "snapshot failed" },
  skipped: { colour: "good", words: "record left out" },
  retried: { colour: "good", words: "record tried again" },
  snapshot: { colour: "quiet", words: "snapshot", short: true },
};
const MARK_NEAR = 8; // pixels within which a mark is named
export const markOf = (kind) => MARKS[kind] ?? { colour: "quiet", words: kind };

/** What happened to processes, from the topic `events`: lines through the plot, short for snapshots. */
function drawMarks(chart) {
  return (u) => {
    const ratio = window.devicePixelRatio;
    u.ctx.save();
    for (const { x, kind } of chart.marks ?? []) {
      if (x < u.scales.x.min || x > u.scales.x.max) continue;
      const { colour: name, short } = markOf(kind);
      const at = Math.round(u.valToPos(x, "x", true)) + 0.5;
      const floor = u.bbox.top + u.bbox.height;
      u.ctx.strokeStyle = colour(name);
      u.ctx.lineWidth = ratio;
      u.ctx.setLineDash(short ? [] : [2 * ratio, 2 * ratio]);
      u.ctx.beginPath();
      u.ctx.moveTo(at, floor);
      u.ctx.lineTo(at, short ? floor - 6 * ratio : u.bbox.top);
      u.ctx.stroke();
    }
    u.ctx.restore();
  };
}

/** The mark next to the cursor in words; the list of marks has them all. */
function nameMark(chart) {
  return (u) => {
    const near = (chart.marks ?? [])
      .map((mark) => ({ mark, away: Math.abs(u.valToPos(mark.x, "x") - u.cursor.left) }))
      .filter(({ away }) => u.cursor.left >= 0 && away <= MARK_NEAR)
      .sort((a, b) => a.away - b.away)[0];
    chart.tip ??= chart.figure.appendChild(element("p", { class: "tip", "aria-hidden": "true" }));
    chart.tip.textContent = near ? describeMark(near.mark) : "";
  };
}

export function describeMark({ kind, role, at_ms: at, detail }) {
  const when = new Date(at).toLocaleString("en-GB");
  return `${role} ${markOf(kind).words}, ${when}${detail ? `: ${detail}` : ""}`;
}

const marked = (chart, hooks = {}) => ({
  ...hooks, draw: [...(hooks.draw ?? []), drawMarks(chart)], setCursor: [nameMark(chart)],
});

/** A figure with its plot, made when it is first filled. */
class Chart {
  constructor(id, options) {
    this.figure = document.getElementById(id);
    this.options = options;
    this.words = this.figure.querySelector(".words");
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.figure);
  }

  size() {
    const style = getComputedStyle(this.figure);
    const width = this.figure.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return { width, height: this.figure.classList.contains("wide") ? HEIGHT.wide : HEIGHT.usual };
  }

  /** Show the data; `summary` is what a reader who cannot see the plot needs to know. */
  draw(data, more, summary) {
    Object.assign(this, more);
    if (this.plot) this.plot.setData(data);
    else {
      const legend = { markers: { width: 0, fill: (u, at) => u.series[at].fill?.(u, at) ?? u.series[at].stroke?.(u, at) } };
      this.plot = new window.uPlot({ ...this.size(), legend, ...this.options(this) }, data, this.figure);
      this.plot.root.querySelector(".u-wrap").setAttribute("role", "img");
    }
    this.plot.root.querySelector(".u-wrap").setAttribute("aria-label", summary);
    if (this.words) this.words.textContent = summary;
  }

  clear() {
    this.plot?.destroy();
    this.plot = null;
  }
}

const tailStart = (u, { tail, x }) =>
  u.valToPos(Math.max(tail.start ? x[tail.start - 1] : u.scales.x.min, u.scales.x.min), "x", true);

/** The part of the plot where labels are still to come. */
function shadeTail(chart) {
  return (u) => {
    if (!chart.tail.count) return;
    const left = tailStart(u, chart);
    u.ctx.fillStyle = colour("shade");
    u.ctx.fillRect(left, u.bbox.top, u.bbox.left + u.bbox.width - left, u.bbox.height);
  };
}

/** What the shade means, where there is room for it. */
function nameTail(chart) {
  return (u) => {
    if (!chart.tail.count) return;
    const ratio = window.devicePixelRatio;
    const lines = [`${share(chart.tail.share, 0)} are here`, "labels still to come"];
    u.ctx.save();
    u.ctx.textAlign = "left";
    u.ctx.font = `${12 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    const width = Math.max(...lines.map((line) => u.ctx.measureText(line).width));
    const left = tailStart(u, chart) + 6 * ratio;
    const floor = u.bbox.top + u.bbox.height - 8 * ratio;
    if (left + width < u.bbox.left + u.bbox.width) {
      u.ctx.fillStyle = colour("plate");
      u.ctx.fillRect(left - 3 * ratio, floor - 28 * ratio, width + 6 * ratio, 33 * ratio);
      u.ctx.fillStyle = colour("text");
      lines.forEach((line, n) => u.ctx.fillText(line, left, floor - 15 * n * ratio));
    }
    u.ctx.restore();
  };
}

const counted = { x: { time: false } };
const accuracyRange = (_, low, high) =>
  low == null ? [0.4, 1] : [Math.max(0, Math.floor(Math.min(low, 0.5) * 10) / 10), Math.min(1, Math.ceil(high * 10) / 10)];

function accuracyOptions(chart) {
  return {
    scales: { ...counted, y: { range: accuracyRange } },
    axes: [countAxis(chart), axis(percent)],
    series: [
      { label: "predictions", value: (_, value) => number(value) },
      shareLine("more frequent label", "quiet", { dash: [1, 3], width: 1.5 }),
      shareLine("naive", "naive", { width: 1.5 }),
      shareLine("last labelled window then", "estimated", { dash: [1, 4], width: 1.5 }),
      shareLine("estimated, without labels", "estimated", { dash: [5, 4], width: 1.5 }),
      shareLine("forecast", "forecast", { width: 2.5 }),
    ],
    hooks: marked(chart, { drawClear: [shadeTail(chart)], draw: [nameTail(chart)] }),
  };
}

function arrivalOptions(chart) {
  return {
    scales: { ...counted, y: { range: accuracyRange } },
    axes: [countAxis(chart), axis(percent)],
    series: [
      { label: "labels", value: (_, value) => number(value) },
      shareLine("naive", "naive", { width: 1.5 }),
      shareLine("forecast", "forecast", { width: 2.5 }),
    ],
  };
}

function lossOptions(chart) {
  const nats = { value: (_, value) => value?.toFixed(3) ?? "" };
  return {
    scales: { ...counted, y: { range: (_, low, high) => [0, Math.max(0.8, (high ?? 0) * 1.05)] } },
    axes: [countAxis(chart), axis()],
    series: [
      { label: "predictions", value: (_, value) => number(value) },
      shareLine("naive", "naive", { width: 1.5, ...nats }),
      shareLine("forecast", "forecast", { width: 2.5, ...nats }),
    ],
    hooks: marked(chart, { drawClear: [shadeTail(chart)] }),
  };
}

function gainOptions(chart) {
  const whole = { value: (_, value) => (value == null ? "" : Math.round(value)) };
  const edge = { stroke: colour("band-edge"), width: 1, points: { show: false }, ...whole };
  return {
    scales: { ...counted, y: { range: (_, low, high) => [Math.min(low ?? 0, -5), Math.max(high ?? 0, 5) * 1.05] } },
    axes: [countAxis(chart), axis()],
    series: [
      { label: "predictions", value: (_, value) => number(value) },
      { label: "+2 se", ...edge },
      { label: "−2 se", ...edge },
      shareLine("errors avoided", "forecast", { width: 2.5, ...whole }),
    ],
    bands: [{ series: [1, 2], fill: colour("band") }],
    hooks: marked(chart, { drawClear: [zeroLine, shadeTail(chart)] }),
  };
}

function zeroLine(u) {
  const y = Math.round(u.valToPos(0, "y", true));
  u.ctx.save();
  u.ctx.strokeStyle = colour("quiet");
  u.ctx.lineWidth = window.devicePixelRatio;
  u.ctx.beginPath();
  u.ctx.moveTo(u.bbox.left, y);
  u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
  u.ctx.stroke();
  u.ctx.restore();
}

const named = ({ colours }, name) => colour(colours.get(name));

function weightOptions(chart) {
  return {
    scales: { ...counted, y: { range: (_, low, high) => [Math.min(low ?? 0, 0) * 1.05, Math.max(high ?? 1, 0.2) * 1.05] } },
    axes: [countAxis(chart), axis()],
    series: [
      { label: "predictions", value: (_, value) => number(value) },
      ...chart.curves.map(({ name }) => ({
        label: name, stroke: named(chart, name), width: 2, points: { show: false },
        value: (_, value) => value?.toFixed(2) ?? "",
      })),
    ],
    hooks: marked(chart, { drawClear: [zeroLine] }),
  };
}

function missingOptions(chart) {
  return {
    scales: { ...counted, y: { range: (_, low, high) => [0, Math.min(1, Math.max(0.1, (high ?? 0) * 1.2))] } },
    axes: [countAxis(chart), axis(percent)],
    series: [
      { label: "predictions", value: (_, value) => number(value) },
      shareLine("missing", "expert-7"),
    ],
    hooks: marked(chart),
  };
}

/** Stacked: each curve is drawn as the sum of itself and those below, the highest first. */
function guardOptions(chart) {
  return {
    scales: { ...counted, y: { range: [0, 1] } },
    axes: [countAxis(chart), axis(percent)],
    series: [
      { label: "predictions", value: (_, value) => number(value) },
      ...chart.curves.map(({ name }, at) => ({
        label: name, stroke: named(chart, name), fill: named(chart, name), width: 1, points: { show: false },
        value: (_, __, ___, index) => share(index == null ? null : chart.curves[at].values[index], 0),
      })),
    ],
    hooks: marked(chart),
  };
}

/** Where labels begin to come too late to be learnt, if that is within the plot. */
function drawDeadline(chart) {
  return (u) => {
    const at = chart.bins.top.findIndex((top) => top >= chart.expireMs);
    if (chart.expireMs == null || at < 0) return;
    const low = at ? chart.bins.top[at - 1] : 0;
    const x = at - 0.5 + (chart.expireMs - low) / (chart.bins.top[at] - low);
    const ratio = window.devicePixelRatio;
    const left = Math.round(u.valToPos(x, "x", true)) + 0.5;
    u.ctx.save();
    u.ctx.strokeStyle = u.ctx.fillStyle = colour("bad");
    u.ctx.lineWidth = 1.5 * ratio;
    u.ctx.beginPath();
    u.ctx.moveTo(left, u.bbox.top);
    u.ctx.lineTo(left, u.bbox.top + u.bbox.height);
    u.ctx.stroke();
    u.ctx.font = `${12 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    u.ctx.textAlign = "right";
    u.ctx.fillText("deadline", left - 4 * ratio, u.bbox.top + 12 * ratio);
    u.ctx.restore();
  };
}

function delayOptions(chart) {
  const drawn = (label, name, values) => ({
    label, fill: colour(name), width: 0, paths: bars({ size: [0.85, 60], align: 0 }), points: { show: false },
    value: (_, __, ___, at) => number(at == null ? null : values()[at]),
  });
  return {
    scales: { x: { time: false, range: (_, low, high) => [low - 0.6, high + 0.6] }, y: { range: (_, __, high) => [0, high || 1] } },
    axes: [
      axis({
        size: 30, incrs: [1, 2, 3, 4, 5, 6, 8, 10, 15, 20],
        values: (_, splits) => splits.map((at) =>
          Number.isInteger(at) && chart.bins.top[at] != null ? duration(chart.bins.top[at]) : ""),
      }),
      axis(),
    ],
    series: [
      { label: "at most", value: (_, at) => (at == null ? "" : duration(chart.bins.top[at])) },
      drawn("label 1", "one", () => chart.bins.one),
      drawn("label 0", "zero", () => chart.bins.zero),
    ],
    hooks: { draw: [drawDeadline(chart)] },
  };
}

function calibrationOptions() {
  const unit = { range: [0, 1] };
  return {
    scales: { x: { time: false, ...unit }, y: unit },
    axes: [axis({ size: 30, ...percent }), axis(percent)],
    series: [
      { label: "forecast", value: (_, value) => share(value, 0) },
      shareLine("label 1 came", "forecast", {
        points: { show: true, size: 9, fill: colour("forecast"), stroke: colour("surface"), width: 1 },
      }),
    ],
    hooks: {
      drawClear: [(u) => {
        u.ctx.save();
        u.ctx.strokeStyle = colour("quiet");
        u.ctx.lineWidth = window.devicePixelRatio;
        u.ctx.setLineDash([4 * window.devicePixelRatio, 4 * window.devicePixelRatio]);
        u.ctx.beginPath();
        u.ctx.moveTo(u.valToPos(0, "x", true), u.valToPos(0, "y", true));
        u.ctx.lineTo(u.valToPos(1, "x", true), u.valToPos(1, "y", true));
        u.ctx.stroke();
        u.ctx.restore();
      }],
    },
  };
}

export class Charts {
  constructor() {
    this.all = {
      accuracy: new Chart("accuracy", accuracyOptions),
      gain: new Chart("gain", gainOptions),
      weights: new Chart("weights", weightOptions),
      guard: new Chart("guard", guardOptions),
      missing: new Chart("missing", missingOptions),
      arrivals: new Chart("arrivals", arrivalOptions),
      loss: new Chart("loss", lossOptions),
      delays: new Chart("delays", delayOptions),
      calibration: new Chart("calibration", calibrationOptions),
    };
    this.colours = { experts: new Map(), guard: new Map() }; // names keep theirs when the order changes
    this.shape = "";
    const theme = window.matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", () => this.last && (this.clear(), this.show(this.last)));
  }

  clear() {
    Object.values(this.all).forEach((chart) => chart.clear());
  }

  show(stream) {
    this.last = stream;
    const { predictions } = stream;
    const { all } = this;
    const labelled = predictions.scored.some((count) => count > 0);
    const experts = weightsOf(predictions, stream.experts);
    const guard = weightsOf(predictions, stream.guard);
    const names = [...experts.curves, ...guard.curves].map(({ name }) => name);
    const shape = [stream.partition, stream.stream, ...names].join("/");
    if (shape !== this.shape) this.clear();
    this.shape = shape;
    for (const id of ["gain", "arrivals", "loss", "delays", "calibration"]) {
      all[id].figure.hidden = !labelled;
    }
    all.weights.figure.hidden = !experts.curves.length;
    all.guard.figure.hidden = !guard.curves.length;
    for (const chart of Object.values(all)) chart.marks = stream.marks ?? [];
    this.giveColours(this.colours.experts, Object.keys(stream.experts));
    this.giveColours(this.colours.guard, Object.keys(stream.guard));
    this.accuracy(predictions, stream.estimates);
    if (experts.curves.length) this.weights(experts, predictions);
    if (guard.curves.length) this.guard(guard, predictions);
    this.missing(predictions);
    if (!labelled) return;
    this.gain(predictions);
    this.arrivals(stream.arrivals);
    if (stream.delays.top_ms.length) this.delays(stream.delays, stream.expire_ms);
    else all.delays.figure.hidden = true;
    this.calibration(stream.calibration, stream.window);
  }

  giveColours(colours, names) {
    for (const name of names) {
      if (colours.has(name)) continue;
      colours.set(name, name === "naive" ? "naive" : `expert-${colours.size % EXPERT_COLOURS}`);
    }
  }

  accuracy(blocks, { calibrated, last_window: labelled }) {
    const found = byPrediction(blocks);
    const off = ({ error }) => (error == null ? "unknown" : `${(100 * error).toFixed(1)} points`);
    const words = `A point holds ${number(found.rows)} predictions. `
      + (found.tail.count ? `The shaded ones still wait: ${share(found.tail.share, 0)} of their labels are here. ` : "")
      + "Dashed is the accuracy that calibrated probabilities claim, dotted that of the labels that had come then: "
      + `now ${share(calibrated.now) || "unknown"} and ${share(labelled.now) || "unknown"}. `
      + (calibrated.error == null ? "" : `So far they were off by ${off(calibrated)} and ${off(labelled)} on average. `)
      + "A pure change of concept shows in neither.";
    const curves = [found.majority, found.naive, found.lastWindow, found.estimated, found.accuracy];
    this.all.accuracy.draw([found.x, ...curves], found, words);
    if (!blocks.scored.some((count) => count > 0)) return;
    const last = [found.loss, found.naiveLoss].map((values) => values.findLast((value) => value != null));
    const nats = last.map((value) => value?.toFixed(3) ?? "–");
    this.all.loss.draw([found.x, found.naiveLoss, found.loss], found, `Now ${nats[0]}, naive ${nats[1]}.`);
  }

  gain(blocks) {
    const { x, total, low, high, last } = gainOf(blocks);
    const sure = last.twice != null && Math.abs(last.gain) > last.twice;
    const words = `So far ${last.gain < 0 ? "−" : "+"}${Math.abs(last.gain)} ± ${Math.round(last.twice ?? 0)}: `
      + (!sure ? "no clear difference." : last.gain > 0 ? "better than naive." : "worse than naive.");
    const { tail } = byPrediction(blocks);
    this.all.gain.draw([x, high, low, total], { x, times: blocks.last_ms, tail }, words);
  }

  weights({ x, curves }, blocks) {
    const words = `Now ${curves.slice(0, 3).map(({ name, values }) => `${name} ${values.at(-1)?.toFixed(2)}`).join(", ")}.`;
    const about = { x, times: blocks.last_ms, curves, colours: this.colours.experts };
    this.all.weights.draw([x, ...curves.map(({ values }) => values)], about, words);
  }

  guard({ x, curves }, blocks) {
    const above = curves.map((_, at) => x.map((__, i) =>
      curves[at].values[i] == null ? null : curves.slice(at).reduce((sum, { values }) => sum + (values[i] ?? 0), 0)));
    const words = `Now ${curves.slice(0, 3).map(({ name, values }) => `${name} ${share(values.at(-1), 0)}`).join(", ")}.`;
    this.all.guard.draw([x, ...above], { x, times: blocks.last_ms, curves, colours: this.colours.guard }, words);
  }

  missing(blocks) {
    const found = missingOf(blocks);
    const last = found.missing.findLast((value) => value != null);
    this.all.missing.figure.hidden = last == null;
    if (last != null) this.all.missing.draw([found.x, found.missing], found, `Now ${share(last, 0)}.`);
  }

  arrivals(blocks) {
    const found = byArrival(blocks);
    const words = `Now ${share(found.accuracy.at(-1))}, naive ${share(found.naive.at(-1))}`;
    this.all.arrivals.draw([found.x, found.naive, found.accuracy], found, words);
  }

  delays(delays, expireMs) {
    const bins = delayBins(delays);
    const both = bins.top.map((_, at) => bins.zero[at] + bins.one[at]);
    const beyond = expireMs > bins.top.at(-1) ? " (right of the plot)" : "";
    const deadline = expireMs == null
      ? "No deadline by time is set (delay.expire_ms)."
      : `Labels after ${duration(expireMs)}${beyond} are too late to be learnt (delay.expire_ms).`;
    const words = `From ${duration(bins.top[0])} to ${duration(bins.top.at(-1))}. ${deadline}`;
    this.all.delays.draw([bins.top.map((_, at) => at), both, bins.zero], { bins, expireMs }, words);
  }

  calibration(bins, window) {
    const { p, y, error, count } = calibrationOf(bins);
    const words = `${number(count)} predictions by tenths; on average off by ${points(error).slice(1)}, `
      + `those of the last window by ${points(window.calibration_error).slice(1)}.`;
    this.all.calibration.draw([p, y], {}, words);
  }
}
