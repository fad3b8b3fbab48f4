// What became of labels, dead letters by reason, and what happened to processes, as tables.

import { describeMark, markOf } from "./charts.js";
import { element, number } from "./format.js";

const MARKS_MAX = 40;
const OUTCOMES = [
  ["first", "first label of a prediction"],
  ["corrected", "corrected an earlier one"],
  ["repeated", "said the same again"],
  ["early", "came before its prediction"],
  ["default", "deadline met: a default label"],
];
const $ = (id) => document.getElementById(id);
const row = (name, ...cells) =>
  element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((text) => element("td", {}, text)));

export function showLabels(labels) {
  $("labels").tBodies[0].replaceChildren(...OUTCOMES.map(([name, words]) => row(words, number(labels[name] ?? 0))));
}

export function showDeadLetters({ dead_letters: all = {}, stream_dead_letters: own = {}, notices_problem: problem }) {
  const names = Object.keys(all).sort((a, b) => all[b] - all[a]);
  const rows = names.map((name) => row(name, number(own[name] ?? 0), number(all[name])));
  $("letters").tBodies[0].replaceChildren(...(rows.length ? rows : [row("none", "0", "0")]));
  $("letters-problem").textContent = problem ? `They cannot be read: ${problem}` : "";
}

/** The newest marks first; snapshots are in the plots alone, but for the newest of each role. */
export function showMarks(marks) {
  const newest = new Map(marks.filter(({ kind }) => kind === "snapshot").map((mark) => [mark.role, mark]));
  const listed = marks.filter((mark) => mark.kind !== "snapshot" || newest.get(mark.role) === mark).reverse();
  const kinds = [...new Set(marks.map(({ kind }) => kind))];
  $("marks-legend").replaceChildren(
    listed.length ? "In the plots by prediction, from the topic events:" : "Nothing has happened to the processes of this partition since its first prediction here.",
    ...kinds.flatMap((kind) => [element("span", { class: `key ${kind}` }), markOf(kind).words]),
  );
  $("marks").tBodies[0].replaceChildren(...listed.slice(0, MARKS_MAX).map((mark) =>
    element("tr", {}, element("th", { scope: "row" }, new Date(mark.at_ms).toLocaleTimeString("en-GB")),
      element("td", { title: `${describeMark(mark)} (${mark.process})` }, `${mark.role} ${markOf(mark.kind).words}${mark.detail ? `: ${mark.detail}` : ""}`))));
}
