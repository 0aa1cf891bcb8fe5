// @ts-check
import { call, useLatest } from "../api.js";
import { Command, Confirm, Failure, Field, Figure, Table } from "../components.js";
import { html, useState } from "../vendor/preact.js";

const CURVES = ["validation", "training", "learning rate", "gradient norm"];
const MOST = 8; // curves over each other that are chosen by themselves

/** Names in the address. @param {string | undefined} text @returns {string[]} */
function names(text) {
  try {
    const value = JSON.parse(text ?? "[]");
    return Array.isArray(value) ? value.map(String) : [];
  } catch {
    return [];
  }
}

/** @param {{run: string, chosen?: string, filter?: string, curve?: string, setState: (patch: object) => void, go: Function}} props */
export default function Runs({ run, chosen, filter = "", curve = CURVES[0], setState, go }) {
  const [again, setAgain] = useState(0);
  const [live, setLive] = useState(false);
  const { value, error } = useLatest("runs", "table", {}, { every: live ? 2000 : 10000, again });
  if (value && value.live !== live) setLive(value.live);
  const rows = (value?.runs ?? []).filter((/** @type {any} */ row) => matches(row, filter));
  const there = new Set((value?.runs ?? []).map((/** @type {any} */ row) => row.name));
  const shown = chosen === undefined ? rows.filter((/** @type {any} */ row) => row.metric || row.live).slice(0, MOST).map((/** @type {any} */ row) => row.name) : names(chosen).filter((name) => there.has(name));
  const choose = (/** @type {string} */ name) => setState({ chosen: JSON.stringify(shown.includes(name) ? shown.filter((/** @type {string} */ one) => one !== name) : [...shown, name]) });
  const columns = [
    { name: "name", title: "run", show: (/** @type {any} */ row) => html`<button type="button" class="link" aria-pressed=${row.name === run} onClick=${() => go("runs", { chosen, filter, curve, run: row.name === run ? "" : row.name })}>${row.name}</button>` },
    { name: "state", title: "state", show: (/** @type {any} */ row) => (row.live ? "training" : row.state) },
    { name: "task", title: "task" },
    { name: "data", title: "data" },
    { name: "model", title: "model" },
    { name: "result", title: "metric", by: (/** @type {any} */ row) => row.metric?.value ?? null },
    { name: "date", title: "date", show: (/** @type {any} */ row) => row.date.slice(0, 16).replace("T", " ") },
    { name: "size", title: "size", right: true, by: (/** @type {any} */ row) => row.bytes },
  ];
  if (value && !value.runs.length)
    return html`<p>There are no runs here yet.</p><p><a class="button" href="#/train">Train a model</a></p>`;
  return html`<${Failure} error=${error} />
    <div class="tools">
      <${Field} label="Filter"><input type="search" value=${filter} placeholder="name, data, model …" onInput=${(/** @type {any} */ event) => setState({ filter: event.target.value })} /></${Field}>
      <${Field} label="Curves"><select value=${curve} onChange=${(/** @type {any} */ event) => setState({ curve: event.target.value })}>${CURVES.map((one) => html`<option>${one}</option>`)}</select></${Field}>
      <button type="button" onClick=${() => setState({ chosen: "[]" })}>Choose none</button>
    </div>
    ${value && html`<${Table} columns=${columns} rows=${rows} label="Runs" chosen=${new Set(shown)} onChoose=${choose} />
      ${!rows.length && html`<p>No run has “${filter}”.</p>`}`}
    <${Curves} runs=${shown} curve=${curve} live=${live} />
    ${run && there.has(run) && html`<${Card} key=${run} run=${run} go=${go} onRemoved=${() => { setState({ run: "" }); setAgain(again + 1); }} />`}`;
}

/** @param {any} row @param {string} filter */
function matches(row, filter) {
  const text = [row.name, row.data, row.model, row.task, row.state, row.result].join(" ").toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** Curves of runs over each other. @param {{runs: string[], curve: string, live: boolean}} props */
export function Curves({ runs, curve, live }) {
  const { value, error } = useLatest("runs", "curves", runs.length ? { runs, curve } : null, { every: live ? 2000 : 0 });
  if (!runs.length) return html`<p class="hint">Choose runs in the table to see their curves.</p>`;
  return html`<${Failure} error=${error} />
    ${value && !value.figures.length && html`<p class="hint">These runs have no ${curve} curve.</p>`}
    ${value?.figures.map((/** @type {any} */ figure) => html`<${Figure} key=${figure.data.title} component=${figure} />`)}`;
}

/** The card of a run or a comparison. @param {{run: string, go: Function, onRemoved: () => void}} props */
function Card({ run, go, onRemoved }) {
  const { value, error } = useLatest("runs", "card", { run });
  const [asking, setAsking] = useState(false);
  const [failure, setFailure] = useState(/** @type {Error | null} */ (null));
  const remove = () => call("runs", "remove", { run }).then(onRemoved, setFailure).finally(() => setAsking(false));
  return html`<section class="card" aria-label=${`card of ${run}`}><h2>${run}</h2><${Failure} error=${error || failure} />
    ${value && html`<p class="subtitle">${[...value.facts, value.state].filter(Boolean).join(" · ")}</p>
      ${value.rows.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="metrics"><table><thead><tr>${value.columns.map((/** @type {string} */ one) => html`<th scope="col">${one}</th>`)}</tr></thead>
        <tbody>${value.rows.map((/** @type {string[]} */ row) => html`<tr>${row.map((cell, i) => (i ? html`<td>${cell}</td>` : html`<th scope="row">${cell}</th>`))}</tr>`)}</tbody></table></div>`}
      ${value.lines.map((/** @type {string} */ line) => html`<p>${line}</p>`)}
      ${value.commands.map((/** @type {string} */ command) => html`<${Command} command=${command} />`)}
      <div class="tools">
        ${value.page && html`<a class="button" href=${`/pages/${[...run.split("/"), value.page].map(encodeURIComponent).join("/")}`} target="_blank" rel="noopener">Open its page</a>`}
        <button type="button" onClick=${() => go("data", { run })}>Its data</button>
        ${value.resume && html`<button type="button" onClick=${() => go("train", { run })}>Resume training</button>`}
        <button type="button" onClick=${() => setAsking(true)}>Remove …</button></div>`}
    ${asking && html`<${Confirm} title=${`Remove ${run}?`} yes="Remove it" onYes=${remove} onNo=${() => setAsking(false)}><p>All its files are deleted: ${value?.facts.join(", ")}. This cannot be undone.</p></${Confirm}>`}</section>`;
}
