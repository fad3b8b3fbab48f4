// Fills the report of a backtest with the charts of the live page.

import { Charts } from "dtgol/charts.js";
import { element, number, points, share } from "dtgol/format.js";
import { bar } from "dtgol/recent.js";

const $ = (id) => document.getElementById(id);
const report = JSON.parse($("report").textContent);
const row = (name, ...cells) =>
  element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((each) => element("td", {}, each)));
const decimals = (value) => (value == null ? "–" : value.toFixed(3));

const [forecast, naive, majority] = report.methods;
const { labels: scored, sets } = report;
const refused = Object.entries(report.refused).map(([reason, count]) => `${reason} ${number(count)}`).join(", ");

$("about").textContent = `${number(report.records)} records, each predicted before its label was given, labels ${number(report.delay)} records late. `
  + `${refused ? `Refused: ${refused}. ` : ""}`
  + (report.records > report.curve_rows_max ? `The curves show the newest ${number(report.curve_rows_max)} records, the table all.` : "");

const tiles = [
  ["records", number(report.records), ""],
  ["accuracy", scored ? share(1 - forecast.cer) : "no labels", `${number(scored)} labels`],
  ["gain over naive", scored ? points(naive.cer - forecast.cer) : "–", ""],
  ["gain over the more frequent label", scored ? points(majority.cer - forecast.cer) : "–", ""],
  ["sets hold the label", share(sets.coverage), scored ? `${share(sets.undecided, 0)} leave both classes open` : ""],
];
$("tiles").replaceChildren(...tiles.map(([name, value, more]) =>
  element("div", {}, element("dt", {}, name), element("dd", {}, value), element("dd", { class: "quiet" }, more))));
$("methods").tBodies[0].replaceChildren(...report.methods.map(({ name, cer, auc, log_loss: loss }) =>
  row(name, cer == null ? "–" : share(1 - cer), share(cer), decimals(auc), decimals(loss))));

$("no-labels").hidden = scored > 0;
new Charts().show(report.stream);
$("arrivals").hidden = true; // with labels a fixed number of records late it is the first curve, moved

const most = Math.max(...report.importance.map(([, value]) => value), 1e-9);
$("features").hidden = !report.importance.length;
$("features-about").textContent = `How far each feature moved the log-odds of the forecast, on average over ${number(report.sampled)} records. `
  + (report.features > report.importance.length ? `The first ${number(report.importance.length)} of ${number(report.features)}. ` : "")
  + "What a forecast rests on, not what causes the label; correlated features share it.";
$("importance").tBodies[0].replaceChildren(...report.importance.map(([name, value]) =>
  row(name, value.toFixed(3), bar(value, most, "share"))));
document.body.dataset.ready = "true";
