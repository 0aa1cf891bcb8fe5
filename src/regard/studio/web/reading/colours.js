// @ts-check
// Colours of tokens, from the ramps of page.css, as highlights that need no elements of their own.

const LEVELS = 16;
/** The ramps of tokens by what is shown. @type {Record<string, string>} */
const RAMPS = { bits: "warm", adds: "diverging" };
const CLASSES = 7; // series colours

const variable = (/** @type {string} */ name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** @param {string} name @returns {number[][]} */
export function ramp(name, levels = LEVELS) {
  const anchors = variable(`--${name}`).split(",").map((hex) => [1, 3, 5].map((i) => (parseInt(hex.trim().slice(i, i + 2), 16) / 255) ** 2.2));
  return Array.from({ length: levels }, (_, level) => {
    const place = (level / (levels - 1)) * (anchors.length - 1);
    const i = Math.min(Math.floor(place), anchors.length - 2);
    return [0, 1, 2].map((c) => Math.round(255 * (anchors[i][c] + (place - i) * (anchors[i + 1][c] - anchors[i][c])) ** (1 / 2.2)));
  });
}

export const rgb = (/** @type {number[]} */ colour) => `rgb(${colour.join(" ")})`;

/** Black or white, whichever reads better. @param {number[]} colour */
export function inkOn(colour) {
  const [r, g, b] = colour.map((byte) => (byte <= 10 ? byte / 3294.6 : ((byte / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

/** The colour of a value from 0 to `most`, small ones spread out by the root. @param {number} value @param {number} most @param {number[][]} colours */
export function rooted(value, most, colours) {
  const part = Math.sqrt(Math.min(1, Math.max(0, value / (most || 1))));
  return colours[Math.round(part * (colours.length - 1))];
}

/** The name of the highlight of a value. @param {string} what @param {number} value @param {number} most */
export function highlightOf(what, value, most) {
  if (Number.isNaN(value)) return "";
  if (what === "classes") return `classes-${value % CLASSES}`;
  const part = what === "adds" ? 0.5 + value / (2 * (most || 1)) : value / (most || 1);
  return `${what}-${Math.round(Math.min(1, Math.max(0, part)) * (LEVELS - 1))}`;
}

/** The colour of a highlight. @param {string} name @returns {number[]} */
export function coloursOf(name) {
  const [what, level] = name.split("-");
  return ramp(RAMPS[what] ?? "warm")[Number(level)];
}

export const colourOf = (/** @type {string} */ name) => rgb(coloursOf(name));

const highlights = /** @type {any} */ (globalThis.CSS)?.highlights;
export const canHighlight = Boolean(highlights && globalThis.CSSStyleSheet && "adoptedStyleSheets" in document);

/** @param {string} name */
function highlight(name) {
  if (!highlights.has(name)) highlights.set(name, new /** @type {any} */ (globalThis).Highlight());
  return highlights.get(name);
}

/** Ranges that are painted together, and can be taken away together. */
export class Painted {
  constructor() {
    /** @type {[any, Range][]} */
    this.ranges = [];
  }

  /** @param {[string, Range][]} named */
  paint(named) {
    this.clear();
    if (!canHighlight) return;
    this.ranges = named.filter(([name]) => name).map(([name, range]) => [highlight(name), range]);
    for (const [one, range] of this.ranges) one.add(range);
  }

  clear() {
    for (const [one, range] of this.ranges) one.delete(range);
    this.ranges = [];
  }
}

const sheet = canHighlight ? new CSSStyleSheet() : null;

function writeSheet() {
  const rules = Object.entries(RAMPS).flatMap(([what, name]) =>
    ramp(name).map((colour, i) => `::highlight(${what}-${i}){background-color:${rgb(colour)};color:${inkOn(colour)}}`));
  const series = variable("--series").split(",");
  for (let i = 0; i < CLASSES; i++)
    rules.push(`::highlight(classes-${i}){background-color:color-mix(in srgb, ${series[i]} 30%, ${variable("--paper")});color:${variable("--ink")}}`);
  rules.push(`::highlight(position){text-decoration:underline 3px ${variable("--accent")}}`);
  sheet?.replaceSync(rules.join("\n"));
}

/** Colours follow light and dark. */
export function useSheet() {
  if (!sheet || document.adoptedStyleSheets.includes(sheet)) return;
  writeSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", writeSheet);
}

/** Load the style sheet of the screens Read and Compare. */
export function useStyles() {
  const href = "/reading/reading.css";
  if (document.querySelector(`link[href="${href}"]`)) return;
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href }));
}
