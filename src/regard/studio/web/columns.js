// @ts-check
// Colours of points by a column, of groups or of numbers, and what they mean.
import { html } from "./vendor/preact.js";
// @ts-ignore: made of the components of `regard look`
import { format, ramp, rgb, seriesColours } from "/look.js";

const STEPS = 32; // colours of a column of numbers

/** How a plane colours its points by a column. @param {any} column @param {Set<number>} hidden the groups that are not drawn */
export function coloursOf(column, hidden) {
  const groups = column?.codes;
  const ends = column?.values ? range(column.values) : [0, 1];
  return {
    palette: () => (groups ? seriesColours() : shades()),
    code: groups ? (/** @type {number} */ i) => groups[i] % seriesColours().length : (/** @type {number} */ i) => shadeOf(column?.values[i], ends),
    shape: groups ? (/** @type {number} */ i) => Math.floor(groups[i] / seriesColours().length) : () => 0,
    hidden: groups && hidden.size ? (/** @type {number} */ i) => hidden.has(groups[i]) : () => false,
  };
}

/** What the colours mean. @param {{column: any, hidden: Set<number>, toggle: (group: number) => void}} props */
export function Legend({ column, hidden, toggle }) {
  if (!column) return null;
  if (column.values) {
    const [low, high] = range(column.values);
    return html`<div class="legend"><span>${format(low)}</span><span class="bar" style=${{ background: `linear-gradient(90deg, ${shades().slice(0, -1).join(", ")})` }}></span><span>${format(high)}</span></div>`;
  }
  const colours = seriesColours();
  const counts = new Array(column.names.length).fill(0);
  for (const code of column.codes) counts[code] += 1;
  return html`<div class="keys" role="group" aria-label="groups; choose one to hide it">${column.names.map((/** @type {string} */ name, /** @type {number} */ i) => html`<button type="button" aria-pressed=${String(!hidden.has(i))} onClick=${() => toggle(i)}>
    <i class=${`point shape-${Math.floor(i / colours.length) % 4}`} style=${{ background: colours[i % colours.length] }}></i>${name || "none"} <small>${format(counts[i])}</small></button>`)}</div>`;
}

const shades = () => ramp("ordered").filter((/** @type {any} */ _, /** @type {number} */ i) => i % (256 / STEPS) === 0).map(rgb).concat([rgb([128, 128, 128])]);

/** @param {number} value @param {number[]} ends */
function shadeOf(value, [low, high]) {
  if (!Number.isFinite(value)) return value > 0 ? STEPS - 1 : STEPS; // grey is unknown
  return Math.round(((value - low) / (high - low || 1)) * (STEPS - 1));
}

/** @param {ArrayLike<number>} values */
function range(values) {
  const finite = Array.from(values).filter(Number.isFinite);
  return finite.length ? [finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b))] : [0, 1];
}

/** @param {any} column @param {number} i */
export function cellOf(column, i) {
  if (column.codes) return column.names[column.codes[i]] || "none";
  const value = column.values[i];
  return Number.isFinite(value) ? format(value) : Number.isNaN(value) ? "unknown" : "∞";
}
