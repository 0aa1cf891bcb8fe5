// @ts-check
// A text that is typed into and coloured as a model reads it. Each page of it is one editable box with one text node:
// the browser edits, wraps and scrolls; colours are highlights over it, and bars are drawn on a canvas behind.
import { html, useEffect, useLayoutEffect, useRef } from "../vendor/preact.js";
import { Painted, colourOf, highlightOf } from "./colours.js";

const BARRED = 400; // tokens up to which each has a bar
const SHORT = 24; // characters that are set large and wide
const BAR = 30; // pixels
const NEAR = "600px"; // beyond the view, pages are read ahead

/** The text of a page. Browsers end a last empty line with a line break of their own: at the end of the text it does
 * not count. @param {HTMLElement} box @param {boolean} last */
function textOf(box, last) {
  const text = (box.textContent ?? "").replace(/\r/g, "");
  return last ? text.replace(/\n$/, "") : text;
}

/** @param {HTMLElement} box @param {string} text @param {boolean} last */
function setText(box, text, last) {
  box.textContent = last && text.endsWith("\n") ? `${text}\n` : text;
}

/** @param {HTMLElement} box @param {number} from @param {number} to */
function rangeOf(box, from, to) {
  const node = box.firstChild;
  if (!node || node.nodeType !== Node.TEXT_NODE) return null;
  const length = node.nodeValue?.length ?? 0;
  if (from >= length) return null;
  const range = document.createRange();
  range.setStart(node, from);
  range.setEnd(node, Math.min(to, length));
  return range;
}

/** The place of the caret in a page. @param {HTMLElement} box @returns {number | null} */
function caretIn(box) {
  const selection = getSelection();
  if (!selection?.focusNode || !box.contains(selection.focusNode)) return null;
  if (selection.focusNode === box) return selection.focusOffset ? textOf(box, true).length : 0;
  const range = document.createRange();
  range.setStart(box, 0);
  range.setEnd(selection.focusNode, selection.focusOffset);
  return range.toString().length;
}

/** Put the caret at a place of a page. @param {HTMLElement} box @param {number} place */
function setCaret(box, place) {
  const node = box.firstChild ?? box;
  getSelection()?.collapse(node, Math.min(place, node === box ? 0 : node.nodeValue?.length ?? 0));
}

/** @param {{page: any, part: any, version: any, value: (k: number) => number, what: string, most: number, barred: boolean,
 *   chosen: {start: number, end: number} | null, label: string, last: boolean,
 *   onText: (text: string, caret: number) => void, onCaret: (offset: number) => void, watch: (box: HTMLElement) => () => void, leave: (way: number) => void}} props */
function Page({ page, part, version, value, what, most, barred, chosen, label, last, onText, onCaret, watch, leave }) {
  const box = useRef(/** @type {any} */ (null));
  const canvas = useRef(/** @type {any} */ (null));
  const painted = useRef(new Painted());
  const place = useRef(new Painted());

  useLayoutEffect(() => { // text from elsewhere; what was typed here is there already
    if (textOf(box.current, last) === page.text) return;
    const caret = document.activeElement === box.current ? caretIn(box.current) : null;
    setText(box.current, page.text, last);
    if (caret !== null) setCaret(box.current, caret);
  }, [page.text, last]);
  useEffect(() => watch(box.current), []);
  useEffect(() => () => { painted.current.clear(); place.current.clear(); }, []);

  useLayoutEffect(() => { // before the frame is drawn
    if (!part || textOf(box.current, last) !== page.text) return;
    const ranges = /** @type {[string, Range, number][]} */ (Array.from(part.names, (_, k) => {
      const range = rangeOf(box.current, Math.max(0, part.starts[k] - page.start), part.ends[k] - page.start);
      return range && part.ends[k] > page.start && [highlightOf(what, value(k), most), range, Math.abs(value(k))];
    }).filter(Boolean));
    painted.current.paint(ranges.map(([name, range]) => [name, range]));
    if (!barred) return;
    const draw = () => canvas.current && drawBars(canvas.current, box.current, ranges, most);
    draw();
    const observer = new ResizeObserver(draw);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [part, version, page.text, what, most, barred]);

  useLayoutEffect(() => {
    const range = chosen && chosen.end > chosen.start ? rangeOf(box.current, chosen.start - page.start, chosen.end - page.start) : null;
    place.current.paint(range && chosen && chosen.start >= page.start ? [["position", range]] : []);
  }, [chosen?.start, chosen?.end, page.text]);

  const typed = () => onText(textOf(box.current, last), caretIn(box.current) ?? 0);
  const moved = () => {
    const caret = caretIn(box.current);
    if (caret !== null) onCaret(page.start + caret);
  };
  const key = (/** @type {KeyboardEvent} */ event) => { // from page to page
    const caret = caretIn(box.current);
    const selected = !getSelection()?.isCollapsed;
    if (event.shiftKey || event.altKey || event.ctrlKey || event.metaKey || selected) return;
    if (["ArrowRight", "ArrowDown"].includes(event.key) && caret === textOf(box.current, true).length) leave(1);
    else if (["ArrowLeft", "ArrowUp"].includes(event.key) && caret === 0) leave(-1);
    else return;
    event.preventDefault();
  };
  return html`<div class="page"><canvas ref=${canvas} aria-hidden="true" hidden=${!barred}></canvas>
    <div ref=${box} class="box" contenteditable="plaintext-only" role="textbox" aria-multiline="true" aria-label=${label} spellcheck=${false}
      autocapitalize="off" onInput=${typed} onKeyUp=${moved} onMouseUp=${moved} onFocus=${moved} onKeyDown=${key}></div></div>`;
}

/** @param {HTMLCanvasElement} canvas @param {HTMLElement} box @param {[string, Range, number][]} ranges @param {number} most */
function drawBars(canvas, box, ranges, most) {
  const edge = box.getBoundingClientRect();
  const scale = Math.min(window.devicePixelRatio || 1, 8000 / Math.max(edge.width, edge.height, 1));
  canvas.width = Math.round(edge.width * scale);
  canvas.height = Math.round((edge.height + BAR) * scale);
  canvas.style.width = `${edge.width}px`;
  canvas.style.height = `${edge.height + BAR}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(scale, scale);
  for (const [name, range, amount] of ranges) {
    const [rect] = range.getClientRects();
    if (!name || !rect || Number.isNaN(amount)) continue;
    context.fillStyle = colourOf(name);
    const height = Math.max(1, (Math.min(amount, most) / most) * BAR);
    context.fillRect(rect.left - edge.left, rect.bottom - edge.top + 2, Math.max(1, rect.width - 1), height);
  }
}

/** The pages of a text. `value(part, k)` is what colours token k of a part; `what` names its colours.
 * @param {{pages: any[], tokens: any, version: number, what: string, value: (part: any, k: number) => number, most: number,
 *   chosen: any, label: string, onText: (text: string, caret: number) => void, onCaret: (offset: number) => void,
 *   setVisible: (pages: number[]) => void, goTo: number | null}} props */
export function Editor({ pages, tokens, version, what, value, most, chosen, label, onText, onCaret, setVisible, goTo }) {
  const root = useRef(/** @type {any} */ (null));
  const seen = useRef(new Set([0]));
  const observer = useRef(/** @type {IntersectionObserver | null} */ (null));
  const watch = (/** @type {HTMLElement} */ box) => {
    observer.current ??= new IntersectionObserver((entries) => {
      const boxes = [...root.current.querySelectorAll(".box")];
      for (const entry of entries) {
        const i = boxes.indexOf(entry.target);
        entry.isIntersecting ? seen.current.add(i) : seen.current.delete(i);
      }
      setVisible([...seen.current].filter((i) => i >= 0).sort((a, b) => a - b));
    }, { root: root.current, rootMargin: NEAR });
    observer.current.observe(box);
    return () => observer.current?.unobserve(box);
  };
  useEffect(() => () => observer.current?.disconnect(), []);
  const boxAt = (/** @type {number} */ i) => root.current?.querySelectorAll(".box")[i];
  useEffect(() => { // a place that was chosen elsewhere
    if (goTo === null) return;
    const i = pages.findIndex((page, n) => goTo < page.stop || n === pages.length - 1);
    const box = boxAt(i);
    if (!box) return;
    box.focus({ preventScroll: true });
    setCaret(box, goTo - pages[i].start);
    (rangeOf(box, goTo - pages[i].start, goTo - pages[i].start + 1)?.startContainer.parentElement ?? box).scrollIntoView?.({ block: "nearest" });
    onCaret(goTo);
  }, [goTo, pages]);
  const typed = (/** @type {number} */ i) => (/** @type {string} */ part, /** @type {number} */ caret) =>
    onText(pages.map((page, n) => (n === i ? part : page.text)).join(""), pages[i].start + caret);
  const leave = (/** @type {number} */ i) => (/** @type {number} */ way) => {
    const box = boxAt(i + way);
    if (!box) return;
    box.focus();
    const place = way > 0 ? 0 : pages[i + way].text.replace(/\n$/, "").length;
    setCaret(box, place);
    onCaret(pages[i + way].start + place);
  };
  const barred = pages.length === 1 && tokens.count <= BARRED;
  return html`<div ref=${root} class=${`editor ${barred ? "barred" : ""} ${pages.length === 1 && pages[0].text.length <= SHORT ? "short" : ""} ${pages.length > 1 ? "long" : ""}`} tabindex=${pages.length > 1 ? 0 : null} role=${pages.length > 1 ? "group" : null} aria-label=${pages.length > 1 ? `${label}, ${pages.length} pages` : null}>
    ${pages.map((page, i) => {
      const part = tokens.parts.get(page.start);
      return html`<${Page} key=${i} page=${page} part=${part} version=${part && pages.length === 1 ? version : part?.names.length} what=${what} most=${most} barred=${barred}
        value=${(/** @type {number} */ k) => value(part, k)} chosen=${chosen && chosen.start >= page.start && chosen.start < page.stop ? chosen : null}
        last=${i === pages.length - 1} label=${pages.length > 1 ? `${label}, page ${i + 1}` : label} onText=${typed(i)} onCaret=${onCaret} watch=${watch} leave=${leave(i)} />`;
    })}</div>`;
}
