// The newest predictions of a stream, and what is behind the one that was chosen.

import { element, number, share, when } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const BAR = { width: 120, height: 10 };
const REST = "(rest)";

export class RecentPredictions {
  constructor(body, panel) {
    this.body = body;
    this.panel = panel;
    this.rows = new Map(); // journal offset -> its row
    this.picked = null; // what the panel shows; kept when it leaves the list
  }

  show({ stream, partition, recent }) {
    const key = `${partition}/${stream}`;
    if (key !== this.key) {
      this.rows.clear();
      this.picked = null;
    }
    this.key = key;
    const rows = recent.map((each) => this.row(each));
    if (rows.length !== this.body.rows.length || rows.some((line, at) => line !== this.body.rows[at])) {
      const focused = document.activeElement;
      this.body.replaceChildren(...rows);
      if (focused?.isConnected && focused !== document.activeElement) focused.focus();
    }
    const offsets = new Set(recent.map(({ offset }) => offset));
    for (const offset of this.rows.keys()) if (!offsets.has(offset)) this.rows.delete(offset);
    const again = recent.find(({ offset }) => offset === this.picked?.offset);
    if (again && again.y !== this.picked.y) this.open(again);
    this.panel.hidden = !this.picked;
  }

  row(each) {
    if (!this.rows.has(each.offset)) this.rows.set(each.offset, this.makeRow(each));
    const { line, label } = this.rows.get(each.offset);
    label.textContent = labelWords(each);
    line.classList.toggle("selected", each.offset === this.picked?.offset);
    return line;
  }

  makeRow(each) {
    const button = element("button", { type: "button" }, each.id ?? number(each.step));
    button.addEventListener("click", () => this.open(each));
    const label = element("td");
    const cells = [when(each.ts), share(each.p), share(each.naive), `{${each.set.join(", ")}}`];
    const line = element("tr", {}, element("th", { scope: "row" }, button),
      ...cells.map((text) => element("td", {}, text)), label);
    return { line, label };
  }

  open(each) {
    this.picked = each;
    for (const [offset, { line }] of this.rows) line.classList.toggle("selected", offset === each.offset);
    this.panel.hidden = false;
    const name = each.id == null ? "" : ` · ${each.id}`;
    this.panel.querySelector("h3").textContent = `Record ${number(each.step)}${name}`;
    this.panel.querySelector("div").replaceChildren(...describe(each));
  }
}

const labelWords = ({ y, label }) => (y == null ? "waits" : `${y}, ${y === label ? "right" : "wrong"}`);

function describe(each) {
  const set = each.set.length > 1 ? "left open: send it to a human" : "decided";
  const verdict = `p = ${share(each.p)}, label ${each.label} (1 above ${share(each.threshold, 0)}); set {${each.set.join(", ")}}, ${set}. `
    + `Naive ${share(each.naive)}. Label: ${labelWords(each)}. ${number(each.labels_learnt)} labels were learnt before.`;
  const parts = [element("p", {}, verdict)];
  const most = Math.max(...each.experts.map(([, , weight]) => Math.abs(weight)), 1e-9);
  if (each.experts.length) {
    parts.push(table("Experts", ["expert", "p", "weight", ""], each.experts.map(([name, p, weight]) =>
      [name, share(p), weight.toFixed(2), bar(weight, most, "weight")])));
  }
  if (each.guard.length) {
    parts.push(table("Guard: what the forecast relies on", ["part", "share", ""],
      each.guard.map(([name, weight]) => [name, share(weight, 0), bar(weight, 1, "share")])));
  }
  parts.push(...reasons(each), missing(each));
  return parts;
}

function reasons({ why }) {
  if (!why.length) {
    return [element("p", { class: "quiet" }, "Which features moved it is not known: reasons are off. "
      + "Start workers with --set worker.why=5 and predictions carry the five largest.")];
  }
  const most = Math.max(...why.map(([, moved]) => Math.abs(moved)), 1e-9);
  const rows = why.map(([name, moved]) =>
    [name === REST ? "all else" : name, `${moved < 0 ? "−" : "+"}${Math.abs(moved).toFixed(2)}`, bar(moved, most)]);
  return [table("What moved the log-odds", ["feature", "log-odds", ""], rows)];
}

function missing({ missing: names, observed_share: observed }) {
  const text = names.length
    ? `Missing (${share(1 - observed, 0)} of the known features): ${names.join(", ")}${names.length >= 50 ? " and more" : ""}.`
    : "No known feature was missing.";
  return element("p", {}, text);
}

function table(caption, head, rows) {
  const cells = (tag, texts) => texts.map((text, at) => element(at ? tag : "th", at ? {} : { scope: "row" }, text));
  const top = element("tr", {}, ...head.map((text) => (text ? element("th", { scope: "col" }, text) : element("td"))));
  return element("table", {}, element("caption", {}, caption), element("thead", {}, top),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row)))));
}

/** A bar from the middle, to the right if above zero; shares begin at the left. */
export function bar(value, most, kind = value < 0 ? "minus" : "plus") {
  const svg = document.createElementNS(SVG, "svg");
  const set = (node, attributes) => Object.entries(attributes).forEach(([name, text]) => node.setAttribute(name, text));
  set(svg, { viewBox: `0 0 ${BAR.width} ${BAR.height}`, width: BAR.width, height: BAR.height, "aria-hidden": "true" });
  const room = kind === "share" ? BAR.width : BAR.width / 2;
  const length = (room * Math.min(Math.abs(value), most)) / most;
  const left = kind === "share" ? 0 : value < 0 ? room - length : room;
  const rect = document.createElementNS(SVG, "rect");
  set(rect, { x: left.toFixed(1), width: length.toFixed(1), height: BAR.height, class: `bar-${kind}` });
  svg.append(rect);
  return svg;
}
