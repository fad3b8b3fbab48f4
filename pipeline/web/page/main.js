// The live page: asks for /page.json every two seconds while the tab is seen, and shows the answer.
// Nothing is kept but the last answer, so a day in a browser costs no more than a minute.

import { Charts } from "./charts.js";
import { duration, element, number, points, share } from "./format.js";
import { showDeadLetters, showLabels, showMarks } from "./notices.js";
import { RecentPredictions } from "./recent.js";
import { StreamTable } from "./table.js";

const EVERY_MS = 2000;
const TOKEN = "dtgol-token";
const $ = (id) => document.getElementById(id);

const charts = new Charts();
const table = new StreamTable($("streams-table"), $("filter"), $("streams-count"), choose);
const recent = new RecentPredictions($("recent").tBodies[0], $("prediction"));
let timer = null;
let asking = null;
let lastAnswer = null;

function chosen() {
  const hash = new URLSearchParams(location.hash.slice(1));
  return hash.has("stream") ? new URLSearchParams({ stream: hash.get("stream"), partition: hash.get("partition") }) : "";
}

function choose(stream, partition) {
  location.hash = new URLSearchParams({ stream, partition });
}

async function poll() {
  clearTimeout(timer);
  asking?.abort();
  if (document.hidden) return;
  const own = (asking = new AbortController());
  const slow = setTimeout(() => own.abort(), 5 * EVERY_MS);
  try {
    const token = sessionStorage.getItem(TOKEN);
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch(`page.json?${chosen()}`, { headers, signal: own.signal, cache: "no-store" });
    if (answer.status === 401) return askForToken(Boolean(token));
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    show(await answer.json());
    timer = setTimeout(poll, EVERY_MS);
  } catch (error) {
    if (own !== asking) return; // another question has taken its place
    unreachable(error);
    timer = setTimeout(poll, EVERY_MS);
  } finally {
    clearTimeout(slow);
  }
}

function askForToken(wrong) {
  sessionStorage.removeItem(TOKEN);
  $("token").hidden = false;
  $("token-wrong").hidden = !wrong;
  $("data").hidden = $("verdict").hidden = true;
  $("connection").textContent = "";
  $("token-value").focus();
}

function unreachable(error) {
  document.body.classList.add("stale");
  const since = lastAnswer ? ` for ${duration(Date.now() - lastAnswer)}; what is shown is from then` : "";
  $("connection").textContent = `no answer${since}`;
  if (!(error instanceof TypeError || error.name === "AbortError")) throw error;
}

function show(page) {
  lastAnswer = Date.now();
  document.body.classList.remove("stale");
  $("token").hidden = true;
  $("data").hidden = $("verdict").hidden = false;
  $("role").textContent = `${page.role} · ${page.group}`;
  document.title = `dtgol ${page.role}: ${page.verdict.level}`;
  $("connection").textContent = `live, ${new Date().toLocaleTimeString("en-GB")}`;
  showVerdict(page.verdict);
  showProcess(page);
  $("streams").hidden = $("memory").hidden = !page.streams;
  $("stream").hidden = !page.selected;
  if (!page.streams) return;
  table.show(page.streams, page.selected);
  $("streams-scroll").hidden = !page.streams.length;
  $("streams-none").hidden = page.streams.length > 0;
  $("streams-dropped").hidden = !page.streams_dropped;
  $("streams-dropped").textContent = `${number(page.streams_dropped)} streams without records for longest are not shown (evaluator.page_streams_max)`;
  if (!page.selected) return;
  showStream(page.selected, page.streams);
  showDeadLetters(page);
}

function showVerdict({ level, text, reasons }) {
  $("verdict").className = level;
  setText($("verdict-text"), text);
  const lines = reasons.slice(0, 5);
  if (reasons.length > 5) lines.push(`and ${reasons.length - 5} more: see status`);
  if ([...$("verdict-reasons").children].map((each) => each.textContent).join() !== lines.join()) {
    $("verdict-reasons").replaceChildren(...lines.map((line) => element("li", {}, line)));
  }
}

function showStream(selected, rows) {
  const row = rows.find(({ stream, partition }) => stream === selected.stream && partition === selected.partition);
  setText($("stream-title"), `${selected.stream} · partition ${selected.partition}`);
  $("no-labels").hidden = row.scored > 0;
  const { detailed, observed_share: observed } = selected.predictions;
  const seen = detailed.at(-1) ? 1 - observed.at(-1) / detailed.at(-1) : null;
  const tiles = [
    ["records", number(row.records), ""],
    ["labelled", row.scored ? share(row.scored / row.predicted, 0) : "none yet", `${number(row.waiting)} wait`],
    ["accuracy", row.scored ? share(row.accuracy) : "no labels yet", row.window ? `of the last ${number(row.window)} labels` : ""],
    ["naive", share(row.naive), row.window ? "of the same labels" : ""],
    ["gain", row.scored ? points(row.accuracy - row.naive) : "–", ""],
    ["median delay", duration(row.median_delay_ms), ""],
    ["missing features", share(seen, 0), "lately"],
    ...decisionTiles(selected),
  ];
  $("tiles").replaceChildren(...tiles.map(([name, value, more]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value), element("dd", { class: "quiet" }, more))));
  charts.show(selected);
  showLabels(selected.labels);
  showMarks(selected.marks);
  recent.show(selected);
  setText($("recent-ids"), selected.recent.some(({ id }) => id != null) ? "" : "Ids are shown only where a token is set (web.token_file).");
}

/** What hard labels and sets were worth: of the last window, and below it since the stream began. */
function decisionTiles({ window, decision }) {
  if (!window.labels || !decision) return [];
  const since = (text) => `since it began ${text}`;
  const classes = `label 0 ${share(window.coverage_0, 0)}, label 1 ${share(window.coverage_1, 0)}`;
  const { cost_fp: fp, cost_fn: fn } = decision;
  const wrong = `${number(window.false_positives)} + ${number(window.false_negatives)}`;
  return [
    ["in the set", share(window.coverage), `${classes}; ${since(share(decision.coverage))}`],
    ["to a human", share(window.undecided), since(share(decision.undecided))],
    ["precision", share(window.precision), since(share(decision.precision))],
    ["recall", share(window.recall), since(share(decision.recall))],
    fp === 1 && fn === 1
      ? ["wrong", wrong, `false positives + missed; ${since(`${number(decision.false_positives)} + ${number(decision.false_negatives)}`)}`]
      : ["cost", ((fp * window.false_positives + fn * window.false_negatives) / window.labels).toFixed(3),
        `a prediction; naive ${decision.naive_cost?.toFixed(3)}, ${since(decision.cost?.toFixed(3))}`],
  ];
}

function showProcess({ partitions, counts }) {
  $("partitions").tBodies[0].replaceChildren(...partitions.map((each) => {
    const state = each.parked ? "parked" : each.ready ? "at work" : `restoring, ${number(each.restored_records)} read`;
    const saved = each.snapshot_failure ? "failed" : each.snapshot_age_s == null ? "none yet" : `${duration(1000 * each.snapshot_age_s)} ago`;
    const behind = each.lag == null ? null : each.lag + (each.sources_lag ?? 0);
    const cells = [state, number(behind), saved].map((text) => element("td", {}, text));
    return element("tr", {}, element("th", { scope: "row" }, String(each.partition)), ...cells);
  }));
  const rows = Object.entries(counts).sort(([a], [b]) => a.localeCompare(b)).map(([name, count]) =>
    element("tr", {}, element("th", { scope: "row" }, name.replace("refusals/", "dead letters/").replace("/", ", ")), element("td", {}, number(count))));
  $("counts").tBodies[0].replaceChildren(...rows);
}

function setText(where, text) {
  if (where.textContent !== text) where.textContent = text; // a live region speaks at every change
}

$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, $("token-value").value.trim());
  $("token-value").value = "";
  poll();
});
document.addEventListener("visibilitychange", poll);
window.addEventListener("hashchange", poll);
poll();
