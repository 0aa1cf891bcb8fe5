// @ts-check
// Where a head looked from the position: over the text, as arcs, and as a map in tiles.
import { call, useLatest } from "../api.js";
import { Failure, Field } from "../components.js";
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { inkOn, ramp, rgb, rooted } from "./colours.js";
import { amount, visible } from "./words.js";

const TILE = 64; // as in tiles.py
const ARCS = 120; // tokens that arcs are drawn over
const LISTED = 6;
const VIEWS = ["text", "arcs", "map"];

/** @param {{asked: Record<string, any> | null, layers: any[], averages: boolean, state: any, setState: (patch: any) => void,
 *   onPick: (token: number, source: boolean) => void, pinned: any, setPinned: (place: any) => void}} props */
export function Attention({ asked, layers, averages, state, setState, onPick, pinned, setPinned }) {
  const names = layers.map((one) => one.name);
  const first = layers.find((one) => one.source) ?? layers[layers.length - 1];
  const layer = names.includes(state.layer) || (state.layer === "all" && averages) ? state.layer : averages && !first?.source ? "all" : first?.name;
  const heads = layers.find((one) => one.name === layer)?.heads ?? 1;
  const head = state.head !== undefined && Number(state.head) < heads ? Number(state.head) : -1;
  const view = VIEWS.includes(state.view) ? state.view : "text";
  const args = asked && layers.length ? { ...asked, at: pinned ?? asked.at, layer, head: layer === "all" ? -1 : head } : null;
  const { value, error, busy } = useLatest("read", "attend", args);
  if (!layers.length) return html`<p class="note">This model has no attention: it has no weights to show.</p>`;
  return html`<div class="tools">
      <${Field} label="Layer"><select value=${layer} onChange=${(/** @type {any} */ e) => setState({ layer: e.target.value, head: "" })}>
        ${averages && html`<option value="all">all, mean</option>`}
        ${layers.map((one) => html`<option value=${one.name}>${one.title}</option>`)}</select></${Field}>
      <${Field} label="Head"><select value=${head} disabled=${layer === "all"} onChange=${(/** @type {any} */ e) => setState({ head: e.target.value })}>
        <option value=${-1}>mean</option>${Array.from({ length: heads }, (_, i) => html`<option value=${i}>head ${i + 1}</option>`)}</select></${Field}>
      <div class="toggle" role="group" aria-label="View">${VIEWS.map((name) => html`<button type="button" aria-pressed=${view === name} onClick=${() => setState({ view: name })}>${name}</button>`)}</div>
      <button type="button" aria-pressed=${pinned !== null} onClick=${() => setPinned(pinned === null ? asked?.at : null)}>${pinned === null ? "Pin" : "Unpin"}</button>
    </div>
    <${Failure} error=${error} />
    <div class=${busy ? "busy" : ""}>${value?.weights && html`<${Summary} value=${value} />
      ${view === "text" ? html`<${Painted} value=${value} onPick=${onPick} />` : view === "arcs" ? html`<${Arcs} value=${value} onPick=${onPick} />` : html`<${TileMap} value=${value} args=${args} />`}`}</div>`;
}

/** The tokens with the largest weights, in words. @param {{value: any}} props */
function Summary({ value }) {
  const order = Array.from(/** @type {Float32Array} */ (value.weights), (weight, i) => [weight, i]).filter(([w]) => w > 0).sort((a, b) => b[0] - a[0]).slice(0, LISTED);
  return html`<p class="readout" role="status" data-of=${value.at}>${value.predicts ? `To predict ${value.names_row ? `“${visible(value.names_row)}”` : "what follows"} it looks at` : `From “${visible(value.names_row)}” it looks at`}: ${order.map(([w, i], n) => html`${n ? ", " : ""}<span class="one" data-column=${i} data-weight=${w}>${visible(value.names[i])} ${amount(w)}</span>`)}.</p>`;
}

/** @param {{value: any, onPick: (token: number, source: boolean) => void}} props */
function Painted({ value, onPick }) {
  const colours = ramp("ramp");
  const most = Math.max(...value.weights);
  return html`<div class="painted" role="group" aria-label=${value.source ? "the source, by weight" : "the text, by weight"}>
      ${value.names.map((/** @type {string} */ name, /** @type {number} */ i) => {
        const weight = value.weights[i];
        const colour = rooted(weight, most, colours);
        const style = weight > 0 ? { background: rgb(colour), color: inkOn(colour) } : {};
        const title = `${visible(name)}: weight ${amount(weight)}`;
        return html`<span class="token" style=${style} title=${title} onClick=${() => onPick(value.first + i, value.source)}>${name === "\n" ? "↵\n" : visible(name)}</span>`;
      })}</div>
    <div class="legend">0 <span class="bar" style=${{ background: `linear-gradient(90deg, ${colours.map(rgb).join(", ")})` }}></span> ${amount(most)} weight, by its root</div>`;
}

/** @param {{value: any, onPick: (token: number, source: boolean) => void}} props */
function Arcs({ value, onPick }) {
  const width = 15;
  const from = Math.max(0, Math.min(value.source ? 0 : value.row - ARCS + 8, value.names.length - ARCS));
  const names = value.names.slice(from, from + ARCS);
  const height = 110;
  const centre = (/** @type {number} */ i) => (i - from + 0.5) * width;
  const start = value.source ? centre(from + names.length) + 20 : centre(value.row);
  const total = names.length * width + (value.source ? 40 : 0);
  const box = useRef(/** @type {any} */ (null));
  useEffect(() => void (box.current.scrollLeft = start - box.current.clientWidth / 2), [start]);
  const arcs = Array.from(/** @type {Float32Array} */ (value.weights), (weight, i) => [weight, i]).filter(([w, i]) => w > 0.002 && i >= from && i < from + names.length);
  return html`<div ref=${box} class="arc-view scroll" tabindex="0" role="group" aria-label="arcs from the position to the tokens that it looks at">
    <svg width=${total} height=${height + 30} role="img" aria-label="arcs">
      ${arcs.map(([weight, i]) => html`<path d=${`M ${start} ${height} Q ${(start + centre(i)) / 2} ${height - Math.min(100, 14 + Math.abs(start - centre(i)) * 0.7)} ${centre(i)} ${height}`} stroke-width=${0.6 + 6 * weight} opacity=${0.15 + 0.85 * Math.sqrt(weight)}><title>${visible(value.names[i])}: ${amount(weight)}</title></path>`)}
      ${names.map((/** @type {string} */ name, /** @type {number} */ k) => html`<text x=${centre(from + k)} y=${height + 18} class=${!value.source && from + k === value.row ? "here" : ""} onClick=${() => onPick(value.first + from + k, value.source)}>${Array.from(visible(name)).slice(0, names.some((/** @type {string} */ one) => one.length > 2) ? 2 : 2).join("")}<title>${visible(name)}</title></text>`)}
    </svg></div>`;
}

/** A map in tiles: zoom with + and −, move with the arrow keys or by dragging. @param {{value: any, args: any}} props */
function TileMap({ value, args }) {
  const [rows, columns] = value.shape;
  const top = value.levels - 1;
  const [level, setLevel] = useState(top);
  const [[r, c], setCell] = useState([Math.min(value.row, rows - 1), 0]);
  const [pooled, setPooled] = useState("greatest");
  const [tiles, setTiles] = useState(/** @type {Record<string, any>} */ ({}));
  const canvas = useRef(/** @type {any} */ (null));
  const key = JSON.stringify({ ...args, at: 0, row: value.first_row });
  const size = 2 ** level;
  const [tileRow, tileColumn] = [Math.floor(r / size / TILE), Math.floor(c / size / TILE)];
  const id = `${key} ${level} ${tileRow} ${tileColumn}`;
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => setLevel((old) => Math.min(old, top)), [top]);
  useEffect(() => setCell([Math.min(value.row, rows - 1), 0]), [value.row, value.first_row]);
  useEffect(() => {
    if (tiles[id] || level > top) return;
    const control = new AbortController();
    call("read", "tile", { ...args, level, row: tileRow, column: tileColumn }, { signal: control.signal })
      .then((tile) => setTiles((old) => ({ ...old, [id]: tile })), (fault) => control.signal.aborted || setError(fault));
    return () => control.abort();
  }, [id]);
  const tile = tiles[id];
  const most = useMemo(() => (tile ? Math.max(...tile.greatest) : 1), [tile]);
  useEffect(() => {
    if (!tile) return;
    const [height, width] = tile.greatest.shape;
    canvas.current.width = width;
    canvas.current.height = height;
    const context = canvas.current.getContext("2d");
    const image = context.createImageData(width, height);
    const colours = ramp("ramp", 256);
    tile[pooled].forEach((/** @type {number} */ w, /** @type {number} */ i) => image.data.set([...rooted(w, most, colours), 255], 4 * i));
    const [y, x] = [Math.floor(r / size) - tileRow * TILE, Math.floor(c / size) - tileColumn * TILE];
    context.putImageData(image, 0, 0);
    if (y >= 0 && y < height && x >= 0 && x < width) {
      context.fillStyle = getComputedStyle(canvas.current).getPropertyValue("--mark");
      context.globalAlpha = 0.85;
      context.fillRect(x, y, 1, 1);
    }
  }, [tile, pooled, r, c]);
  const move = (/** @type {number} */ dr, /** @type {number} */ dc) => setCell([Math.max(0, Math.min(rows - 1, r + dr * size)), Math.max(0, Math.min(columns - 1, c + dc * size))]);
  const zoom = (/** @type {number} */ by) => setLevel(Math.max(0, Math.min(top, level - by)));
  const keys = (/** @type {KeyboardEvent} */ event) => {
    const step = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] })[event.key];
    if (step) move(...step);
    else if (event.key === "+" || event.key === "=") zoom(1);
    else if (event.key === "-") zoom(-1);
    else return;
    event.preventDefault();
  };
  const point = (/** @type {PointerEvent} */ event) => {
    const edge = canvas.current.getBoundingClientRect();
    const [height, width] = tile.greatest.shape;
    const row = (tileRow * TILE + Math.floor(((event.clientY - edge.top) / edge.height) * height)) * size;
    const column = (tileColumn * TILE + Math.floor(((event.clientX - edge.left) / edge.width) * width)) * size;
    setCell([Math.max(0, Math.min(rows - 1, row)), Math.max(0, Math.min(columns - 1, column))]);
  };
  const [y, x] = [Math.floor(r / size) - tileRow * TILE, Math.floor(c / size) - tileColumn * TILE];
  const weight = tile && y >= 0 && x >= 0 && y < tile.greatest.shape[0] && x < tile.greatest.shape[1] ? tile[pooled][y * tile.greatest.shape[1] + x] : NaN;
  return html`<div class="tools"><button type="button" onClick=${() => zoom(1)} disabled=${level === 0} aria-label="zoom in">+</button>
      <button type="button" onClick=${() => zoom(-1)} disabled=${level === top} aria-label="zoom out">−</button>
      <div class="toggle" role="group" aria-label="cells show">${["greatest", "mean"].map((one) => html`<button type="button" aria-pressed=${pooled === one} onClick=${() => setPooled(one)}>${one}</button>`)}</div></div>
    <${Failure} error=${error} />
    <canvas ref=${canvas} class="tile-map" tabindex="0" role="img" aria-label=${`attention map, ${rows} by ${columns}, a cell is ${size} by ${size} weights; arrow keys read it, plus and minus zoom`} onKeyDown=${keys} onPointerDown=${point}></canvas>
    <p class="readout" role="status" data-weight=${weight} data-cell=${`${r},${c}`}>${Number.isNaN(weight) ? "" : `${pooled} weight ${amount(weight)}`} · row ${r + 1}${value.source || size > 1 ? "" : ` (${visible(value.names[r] ?? "")})`} looks at ${c + 1} (${visible(value.names[c] ?? "")})${size > 1 ? `, ${size} × ${size} weights a cell` : ""}</p>`;
}
