// Elements, text and numbers. Data only ever becomes text nodes; attribute names are always our own.
const renderers = {};

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "style" && value) element.style.cssText = value; // the studio's policy forbids the attribute
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null)); // strings become text nodes
  return element;
}
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const heading = (title) => (title ? el("h3", {}, label(title)) : null);

const NAMED = { " ": "·", "\n": "↵", "\t": "⇥" };
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}]/u;

// The one way a token is shown: spaces and controls made readable. Python's `visible` agrees with it.
function visible(token, spaces = true) {
  if (token === "") return spaces ? "∅" : "";
  let shown = "";
  for (const character of token) {
    const code = character.codePointAt(0);
    if (character in NAMED) shown += spaces ? NAMED[character] : character;
    else if (code < 0x20) shown += String.fromCodePoint(0x2400 + code);
    else if (code === 0x7f) shown += "␡";
    else if (HIDDEN.test(character) && code !== 0x200c && code !== 0x200d)
      shown += `⟨${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
    else shown += character;
  }
  return spaces && /^\p{M}/u.test(token) ? "◌" + shown : shown;
}
const label = (text) => visible(text, false); // titles and names keep their spaces
// Labels of rows and columns may be either: a name keeps its inner spaces, white space at an edge shows.
const tokenOrName = (text) => (text === "" || /^\s|\s$|[\n\t]/.test(text) ? visible(text) : label(text));

// Numbers that JSON cannot say travel as null (NaN), "inf" and "-inf".
const toNumber = (value) =>
  value === null ? NaN : value === "inf" ? Infinity : value === "-inf" ? -Infinity : value;

function format(value, digits = 4) {
  if (Number.isNaN(value)) return "not finite";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(digits - 2).replace("-", "−");
  const text = size >= 1000 ? value.toFixed(size >= 1e4 ? 0 : 1) : Number(value.toPrecision(digits)).toString();
  const [whole, rest] = text.replace("-", "").split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return (value < 0 ? "−" : "") + grouped + (rest && Number(rest) ? "." + rest : "");
}
const percent = (p) => (p > 0 && p < 0.0005 ? "<0.1%" : `${(100 * p).toFixed(1)}%`);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// Draw now and whenever the width, the colour scheme or the medium changes.
const drawings = new Map();
function onWidth(element, draw) {
  let width = 0;
  const run = () => {
    width = element.clientWidth;
    if (width) draw(width);
  };
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    requestAnimationFrame(run);
  }).observe(element);
  drawings.set(element, run);
  return element;
}
function redraw(inside = document) {
  for (const [element, run] of drawings) {
    if (!element.isConnected) drawings.delete(element);
    else if (inside.contains(element)) run();
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
for (const [event, printing] of [["beforeprint", true], ["afterprint", false]])
  addEventListener(event, () => {
    document.documentElement.toggleAttribute("data-print", printing);
    redraw();
  });

// A canvas in CSS pixels on screens of any density.
function canvasOf(canvas, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 16000 / Math.max(width, height));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

// One stop for the Tab key in a group; arrows move inside it. `next(item, dx, dy)` says where to.
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
function rove(group, items, next) {
  items.forEach((item, i) => item.setAttribute("tabindex", i ? -1 : 0));
  group.addEventListener("keydown", (event) => {
    const from = event.target.closest("[tabindex]");
    if (!(event.key in ARROWS) || !items.includes(from)) return;
    const to = next(from, ...ARROWS[event.key]);
    event.preventDefault();
    if (to) to.focus();
  });
  group.addEventListener("focusin", (event) => {
    const at = event.target.closest("[tabindex]");
    if (items.includes(at)) items.forEach((item) => item.setAttribute("tabindex", item === at ? 0 : -1));
  });
}

// A box that scrolls sideways fades where there is more to see.
function fadeEdges(box) {
  const update = () => {
    const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.classList.toggle("more-left", box.scrollLeft > 1);
    box.classList.toggle("more-right", rest > 1);
    const reachable = box.scrollWidth <= box.clientWidth + 1 || box.querySelector("[tabindex], button");
    reachable ? box.removeAttribute("tabindex") : box.setAttribute("tabindex", 0); // arrow keys scroll it
  };
  box.addEventListener("scroll", update, { passive: true });
  onWidth(box, update);
  requestAnimationFrame(update);
}
