// Numbers, durations and times as text; elements from text. A value that is not there is a dash.

const NUMBER = new Intl.NumberFormat("en");
const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000], ["ms", 1]];

export const number = (value) => (value == null ? "–" : NUMBER.format(value));
export const share = (value, digits = 1) =>
  value == null ? "–" : `${(100 * value).toFixed(digits)} %`;
export const points = (value) =>
  value == null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(1)} pts`;

export function duration(ms) {
  if (ms == null) return "–";
  const [unit, size] = UNITS.find(([, size]) => ms >= size) ?? UNITS.at(-1);
  const value = ms / size;
  return `${value.toFixed(value < 10 && unit !== "ms" ? 1 : 0)} ${unit}`;
}

/** A moment, as exact as the span it is shown in needs. */
export function moment(ms, spanMs) {
  const day = spanMs > 2 * 86_400_000;
  const options = day
    ? { month: "short", day: "numeric" }
    : { hour: "2-digit", minute: "2-digit", ...(spanMs < 600_000 && { second: "2-digit" }) };
  return new Intl.DateTimeFormat("en-GB", options).format(ms);
}

/** A moment with its day. */
export const when = (ms) => new Intl.DateTimeFormat("en-GB", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" }).format(ms);

/** An element with attributes and children; text is never read as HTML. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
