// @ts-check
// Embeddings: vectors as points that can be enlarged, circled, searched, coloured by any column and saved.
import { useLatest } from "../api.js";
import { Legend, cellOf, coloursOf } from "../columns.js";
import { Failure, Field, RunPicker } from "../components.js";
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { download } from "./errors.js";
// @ts-ignore: made of the components of `regard look`
import { canvasPlane, format, visible } from "/look.js";

const SIZES = [500, 2000, 5000, 10000, 20000]; // points
const LISTED = 60; // points of a selection that are listed

/** @param {any} props */
export default function Embeddings({ run, state, setRun, setState, go }) {
  const { value: found, error, busy: opening } = useLatest("embeddings", "sets", run ? { run } : null);
  const sets = found?.run === run ? found.sets : [];
  const vectors = sets.includes(state.vectors) ? state.vectors : sets[0];
  const layout = state.layout || "principal components";
  const dimensions = state.dimensions === "3" ? 3 : 2;
  const most = Number(state.most) || 2000;
  const asked = vectors ? { run, vectors, layout, dimensions, most } : null;
  const { value, error: failure, busy } = useLatest("embeddings", "points", asked);
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setState({ [name]: event.target.value });
  const choice = (/** @type {string} */ name, /** @type {string} */ title, /** @type {any} */ chosen, /** @type {any[]} */ options) => html`<${Field} label=${title}><select value=${String(chosen)} onChange=${set(name)}>${options.map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></${Field}>`;
  return html`<div class="tools"><${RunPicker} run=${run} setRun=${(/** @type {string} */ next) => go("embeddings", { run: next })} />
      ${sets.length > 1 && choice("vectors", "Vectors of", vectors, sets.map((/** @type {string} */ one) => [one, one]))}
      ${sets.length > 0 && choice("layout", "Layout", layout, found.layouts.map((/** @type {string} */ one) => [one, one]))}
      ${sets.length > 0 && choice("dimensions", "Dimensions", dimensions, [["2", "2"], ["3", "3"]])}
      ${sets.length > 0 && choice("most", "At most", most, SIZES.map((n) => [n, `${format(n)} points`]))}</div>
    <${Failure} error=${error || failure} />
    ${!run && html`<p>Choose a run to see its vectors: of records, of words, or of tokens.</p>`}
    ${run && (opening || busy) && html`<p role="status">${busy ? "Laying out the vectors…" : "Loading the model…"}</p>`}
    ${found?.run === run && !sets.length && html`<p>This model has no vectors to draw: neither one for each record nor a table of token embeddings.</p>`}
    ${vectors && value?.run === run && value.of === vectors && html`<${Atlas} key=${[run, vectors, value.layout, value.dimensions, value.most].join(" ")} run=${run} data=${value} state=${state} setState=${setState} go=${go} />`}`;
}

/** The map with its legend, search, neighbours and selection.
 * @param {{run: string, data: any, state: Record<string, string>, setState: (patch: any) => void, go: Function}} props */
function Atlas({ run, data, state, setState, go }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const tools = useRef(/** @type {HTMLElement | null} */ (null));
  const map = useRef(/** @type {any} */ (null));
  const [selected, setSelected] = useState(/** @type {number[]} */ ([]));
  const [hidden, setHidden] = useState(/** @type {Set<number>} */ (new Set()));
  const chosen = state.point !== undefined && Number(state.point) < data.names.length ? Number(state.point) : -1;
  const columns = Object.keys(data.columns);
  const colour = columns.includes(state.colour) ? state.colour : columns[0] ?? "";
  const column = data.columns[colour];
  const search = state.text ?? "";
  const found = useMemo(() => matches(data.names, search), [data, search]);
  const { value: near } = useLatest("embeddings", "neighbours", chosen < 0 ? null : { run, vectors: data.of, most: data.most, index: chosen, count: 12 });
  const neighbours = near && near.index === chosen && chosen >= 0 ? near.neighbours : [];

  useEffect(() => {
    const describe = (/** @type {number} */ i) => [visible(data.names[i], false), ...Object.keys(data.columns).slice(0, 4).map((name) => `${name}: ${cellOf(data.columns[name], i)}`)];
    map.current = canvasPlane({
      points: data.points, dimensions: data.dimensions, names: data.names.map((/** @type {string} */ name) => visible(name, data.records === null)), title: data.of, lines: describe,
      choose: (/** @type {number} */ i) => setState({ point: i }), circle: (/** @type {number[]} */ indices) => setSelected(indices),
    });
    place.current?.replaceChildren(map.current.box);
    tools.current?.replaceChildren(map.current.tools);
  }, [data]);
  useEffect(() => {
    map.current.update({ ...coloursOf(column, hidden), nameAll: data.records === null });
  }, [data, colour, hidden]);
  useEffect(() => {
    map.current.show(chosen);
    map.current.update({ chosen, marked: neighbours.map((/** @type {any} */ [i]) => i), found: new Set(found ?? []), selected: new Set(selected) });
  }, [data, chosen, near, found, selected]);

  const save = () => download(`${data.of}.csv`, toCsv(data, selected));
  const toggle = (/** @type {number} */ group) => setHidden(new Set(hidden.has(group) ? [...hidden].filter((one) => one !== group) : [...hidden, group]));
  const name = (/** @type {number} */ i) => visible(data.names[i], data.records === null);
  const point = (/** @type {number} */ i) => html`<button type="button" onClick=${() => setState({ point: i })}>${name(i)}</button>`;
  return html`<div class="tools"><${Field} label="Search" hint="a text, or /a pattern/"><input type="search" value=${search} spellcheck="false" onInput=${(/** @type {any} */ event) => setState({ text: event.target.value })}
        onKeyDown=${(/** @type {any} */ event) => event.key === "Enter" && found?.length && setState({ point: found[(found.indexOf(chosen) + 1) % found.length] })} /></${Field}>
      ${columns.length > 0 && html`<${Field} label="Colour"><select value=${colour} onChange=${(/** @type {any} */ event) => { setHidden(new Set()); setState({ colour: event.target.value }); }}>${columns.map((one) => html`<option value=${one}>${one}</option>`)}</select></${Field}>`}
      <span ref=${tools}></span></div>
    <p class="readout" role="status">${format(data.names.length)} points of ${format(data.width)} dimensions${found ? `; ${format(found.length)} match` : ""}${selected.length ? `; ${format(selected.length)} selected` : ""}</p>
    <${Legend} column=${column} hidden=${hidden} toggle=${toggle} />
    <div class="atlas"><div><div ref=${place}></div><p class="hint">${data.axes.some(Boolean) ? `${["across", "up", "deep"].slice(0, data.axes.length).map((way, i) => `${way}: ${data.axes[i]}`).join("; ")}. ` : ""}${data.note} Shift and drag circles points, as the lasso does; Enter chooses, Space selects.</p></div>
      <aside>${chosen >= 0 ? html`<h2>${name(chosen)}</h2><dl class="pairs small">${columns.map((one) => html`<div><dt>${one}</dt><dd>${cellOf(data.columns[one], chosen)}</dd></div>`)}</dl>
          ${data.records && html`<p><button type="button" onClick=${() => go("read", { run, record: data.records[chosen] })}>read it</button></p>`}
          <h3>Nearest, by the cosine of all ${format(data.width)} dimensions</h3><ol class="near">${neighbours.map((/** @type {any} */ [i, cosine]) => html`<li>${point(i)}<span class="number">${Number(cosine).toFixed(3)}</span></li>`)}</ol>` : html`<p>Choose a point to see what is nearest to it.</p>`}
        ${selected.length > 0 && html`<h3>Selected</h3><div class="tools"><button type="button" onClick=${save}>save as CSV</button><button type="button" onClick=${() => setSelected([])}>none</button></div>
          <ol class="near">${selected.slice(0, LISTED).map((i) => html`<li>${point(i)}</li>`)}</ol>${selected.length > LISTED ? html`<p class="hint">and ${format(selected.length - LISTED)} more</p>` : null}`}</aside></div>`;
}

/** The points whose names match a text or /a pattern/; null without a search.
 * @param {string[]} names @param {string} search */
function matches(names, search) {
  if (!search) return null;
  const indices = names.map((_, i) => i);
  const [, pattern] = search.match(/^\/(.+?)\/?$/) ?? [];
  if (!pattern) return indices.filter((i) => names[i].toLowerCase().includes(search.toLowerCase()));
  try {
    const expression = new RegExp(pattern, "iu");
    return indices.filter((i) => expression.test(names[i]));
  } catch {
    return [];
  }
}

/** @param {any} data @param {number[]} indices */
function toCsv(data, indices) {
  const quote = (/** @type {any} */ cell) => (/[",\r\n]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell));
  const columns = Object.keys(data.columns);
  const axes = ["x", "y", "z"].slice(0, data.dimensions);
  const head = [...(data.records ? ["record"] : []), "name", ...axes, ...columns];
  const rows = indices.map((i) => [...(data.records ? [data.records[i] + 1] : []), data.names[i], ...axes.map((_, k) => data.points[i * data.dimensions + k]), ...columns.map((name) => cellOf(data.columns[name], i))]);
  return [head, ...rows].map((row) => row.map(quote).join(",")).join("\r\n") + "\r\n";
}
