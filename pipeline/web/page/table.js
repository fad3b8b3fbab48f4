// The table of streams: sortable by every column, filtered by name, a row per stream and partition.

import { duration, element, number, points, share } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const SPARK = { width: 96, height: 20 };

const labelled = (row) => (row.predicted ? row.scored / row.predicted : null);
const gain = (row) => (row.accuracy == null ? null : row.accuracy - row.naive);

const COLUMNS = [
  { name: "stream", of: (row) => row.stream },
  { name: "partition", of: (row) => row.partition, show: number },
  { name: "records", of: (row) => row.records, show: number },
  { name: "waiting", of: (row) => row.waiting, show: number, title: "predictions without a label" },
  { name: "learnt", of: (row) => row.learnt, show: number, title: "labels that the learner had learnt at its newest prediction" },
  { name: "scored", of: (row) => row.scored, show: number },
  { name: "labelled", of: labelled, show: (value) => share(value, 0), title: "share of the predictions kept" },
  { name: "accuracy", of: (row) => row.accuracy, show: share, title: "of the last window: the newest 200 labels or more" },
  { name: "naive", of: (row) => row.naive, show: share, title: "of the same window" },
  { name: "gain", of: gain, show: points, title: "accuracy minus that of naive" },
  { name: "median delay", of: (row) => row.median_delay_ms, show: duration },
];

const AT = Object.fromEntries(COLUMNS.slice(1).map(({ name }, at) => [name, at]));

export class StreamTable {
  constructor(table, filter, count, choose) {
    this.body = table.tBodies[0];
    this.head = table.tHead.rows[0];
    this.filter = filter;
    this.count = count;
    this.choose = choose;
    this.sort = { column: 2, down: true };
    this.rows = [];
    this.shown = new Map(); // key -> the cells of its row
    filter.addEventListener("input", () => this.draw());
    COLUMNS.forEach((column, at) => {
      const button = element("button", { type: "button" }, column.name);
      if (column.title) button.title = column.title;
      button.addEventListener("click", () => this.sortBy(at));
      this.head.append(element("th", { scope: "col" }, button));
    });
    this.head.append(element("th", { scope: "col" }, "by prediction time"));
  }

  show(rows, selected) {
    this.rows = rows;
    this.selected = selected && keyOf(selected);
    this.draw();
  }

  sortBy(column) {
    const again = this.sort.column === column;
    this.sort = { column, down: again ? !this.sort.down : column > 1 };
    this.draw();
  }

  draw() {
    const { column, down } = this.sort;
    const wanted = this.filter.value.trim().toLowerCase();
    const kept = this.rows.filter((row) => row.stream.toLowerCase().includes(wanted));
    kept.sort((a, b) => compare(COLUMNS[column].of(a), COLUMNS[column].of(b), down));
    [...this.head.cells].forEach((cell, at) => {
      if (at === column) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    this.count.textContent =
      kept.length === this.rows.length ? `${kept.length}` : `${kept.length} of ${this.rows.length}`;
    const now = kept.map((row) => this.row(row));
    if (now.length !== this.body.rows.length || now.some((row, at) => row !== this.body.rows[at])) {
      const focused = document.activeElement;
      this.body.replaceChildren(...now);
      if (focused?.isConnected && focused !== document.activeElement) focused.focus();
    }
    const keys = new Set(this.rows.map(keyOf));
    for (const key of this.shown.keys()) if (!keys.has(key)) this.shown.delete(key);
  }

  row(row) {
    const key = keyOf(row);
    if (!this.shown.has(key)) this.shown.set(key, this.makeRow(row));
    const { line, button, cells, spark } = this.shown.get(key);
    button.setAttribute("aria-pressed", String(key === this.selected));
    line.classList.toggle("selected", key === this.selected);
    COLUMNS.slice(1).forEach(({ of, show }, at) => {
      const text = show(of(row));
      if (cells[at].textContent !== text) cells[at].textContent = text;
    });
    if (!row.scored) cells[AT.scored].textContent = "no labels yet";
    const tenths = Math.round(1000 * (gain(row) ?? 0)); // as shown
    cells[AT.gain].className = tenths < 0 ? "worse" : tenths > 0 ? "better" : "";
    drawSpark(spark, row.spark);
    return line;
  }

  makeRow(row) {
    const button = element("button", { type: "button" }, row.stream);
    button.addEventListener("click", () => this.choose(row.stream, row.partition));
    const cells = COLUMNS.slice(1).map(() => element("td"));
    const spark = document.createElementNS(SVG, "svg");
    spark.setAttribute("viewBox", `0 0 ${SPARK.width} ${SPARK.height}`);
    spark.setAttribute("aria-hidden", "true");
    spark.append(document.createElementNS(SVG, "path"));
    const line = element("tr", {}, element("th", { scope: "row" }, button), ...cells, element("td", {}, spark));
    return { line, button, cells, spark };
  }
}

const keyOf = ({ stream, partition }) => `${partition}/${stream}`;

/** What is not there comes last, whatever the direction. */
function compare(a, b, down) {
  if (a == null || b == null) return (a == null) - (b == null);
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return down ? -order : order;
}

/** Accuracy from one half to one; below one half it runs along the floor. */
function drawSpark(svg, values) {
  const step = SPARK.width / Math.max(values.length - 1, 1);
  let pen = "M";
  const path = values.map((value, at) => {
    if (value == null) {
      pen = "M";
      return "";
    }
    const y = 1 + (SPARK.height - 2) * (1 - Math.max(0, 2 * value - 1));
    const drawn = `${pen}${(at * step).toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
    return drawn;
  });
  svg.firstChild.setAttribute("d", path.join(""));
}
