// @ts-check
// Parts that screens share.
import { html, useEffect, useId, useMemo, useRef, useState } from "./vendor/preact.js";
// @ts-ignore: the server makes this module of the components of `regard look`
import { draw, fadeEdges } from "/look.js";
import { call, useLatest } from "./api.js";

/** @typedef {{kind: string, data: Record<string, any>}} Component a figure as Python's `figure(component)` gives it */

/** A component of the look pages. It is drawn anew when its data change.
 * @param {{component: Component | null, label?: string}} props */
export function Figure({ component, label }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const text = useMemo(() => JSON.stringify(component), [component]);
  useEffect(() => {
    if (component && place.current) draw(component, place.current);
  }, [text]);
  return component && html`<div ref=${place} class=${`component ${component.kind}`} aria-label=${label} role=${label ? "group" : null}></div>`;
}

/** What went wrong, in words. @param {{error: Error | string | null}} props */
export function Failure({ error }) {
  if (!error) return null;
  const details = /** @type {any} */ (error).details ?? [];
  return html`<div class="notice" role="alert">${typeof error === "string" ? error : error.message}
    ${details.length > 0 && html`<pre>${details.join("\n")}</pre>`}</div>`;
}

/** A page of `regard look` or `regard data`, as Python's `Page.to_json` gives it. @param {{page: any}} props */
export function PageView({ page }) {
  return html`<article>
    <h2>${page.title}</h2>${page.subtitle && html`<p class="subtitle">${page.subtitle}</p>`}
    ${page.warnings.map((/** @type {string} */ text) => html`<p class="notice" role="note">${text}</p>`)}
    ${page.sections.map(section)}</article>`;
}

/** @param {any} one */
function section(one) {
  const note = one.note && html`<p class="note">${one.note}</p>`;
  const rows = one.rows.map((/** @type {Component[]} */ row) => html`<div class="row">${row.map((component) => html`<${Figure} component=${component} />`)}</div>`);
  if (one.folded) return html`<section><details><summary><h2>${one.title}</h2></summary>${note}${rows}</details></section>`;
  return html`<section>${one.title && html`<h2>${one.title}</h2>`}${note}${rows}</section>`;
}

/** A command line with a button that copies it. @param {{command: string, label?: string}} props */
export function Command({ command, label = "The command" }) {
  const [copied, setCopied] = useState("");
  const copy = () => navigator.clipboard.writeText(command).then(() => setCopied(command), () => setCopied(""));
  return html`<div class="command"><code tabindex="0" aria-label=${label}>${command}</code>
    <button type="button" onClick=${copy}>${copied === command ? "Copied" : "Copy"}</button></div>`;
}

/** Ask before something cannot be undone. @param {{title: string, yes: string, children?: any, onYes: () => void, onNo: () => void}} props */
export function Confirm({ title, yes, children, onYes, onNo }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useEffect(() => dialog.current?.showModal(), []);
  return html`<dialog ref=${dialog} aria-labelledby=${id} onClose=${onNo}><h2 id=${id}>${title}</h2>${children}
    <div class="tools"><button type="button" onClick=${onNo}>Keep it</button><button type="button" class="main" onClick=${onYes}>${yes}</button></div></dialog>`;
}

/** A job: its command, state and lines, followed while it runs. @param {{number: number, onEnd?: (job: any) => void, children?: any}} props */
export function Job({ number, onEnd, children }) {
  const [ended, setEnded] = useState(false);
  const { value: job, error } = useLatest("train", "job", { number }, { every: ended ? 0 : 1000 });
  const [failure, setFailure] = useState(/** @type {Error | null} */ (null));
  const running = job && (job.state === "running" || job.state === "stopping");
  useEffect(() => {
    if (!job || running || ended) return;
    setEnded(true);
    onEnd?.(job);
  }, [job?.state]);
  const printed = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (printed.current) printed.current.scrollTop = printed.current.scrollHeight; // the newest line
  }, [job?.lines.at(-1)]);
  if (!job) return html`<${Failure} error=${error} />`;
  const stop = () => call("train", "stop", { number }).catch(setFailure);
  return html`<div class="job"><${Command} command=${job.command} />
    <p role="status"><strong>${job.state}</strong> · ${clock(job.seconds)} ${running && html`<button type="button" onClick=${stop}>${job.state === "stopping" ? "Stop at once" : "Stop"}</button>`} ${children}</p>
    <${Failure} error=${failure || error} />
    ${job.lines.length > 0 && html`<pre ref=${printed} class="printed" tabindex="0" role="region" aria-label="what it prints">${job.lines.join("\n")}</pre>`}</div>`;
}

/** A time as 1:02:03, or 2:03 below an hour. @param {number} seconds */
export function clock(seconds) {
  const total = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(total / 3600), Math.floor(total / 60) % 60, String(total % 60).padStart(2, "0")];
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/** A label and the control inside it. @param {{label: string, hint?: string, children?: any}} props */
export function Field({ label, hint, children }) {
  return html`<label class="field"><span>${label}</span>${children}${hint && html`<small>${hint}</small>`}</label>`;
}

/** A number chosen by a slider. @param {{label: string, value: number, min: number, max: number, step?: number,
 *   onChange: (value: number) => void, show?: (value: number) => string}} props */
export function Slider({ label, value, min, max, step = 1, onChange, show = String }) {
  const id = useId();
  return html`<div class="field slider"><label for=${id}>${label} <output for=${id}>${show(value)}</output></label>
    <input id=${id} type="range" min=${min} max=${max} step=${step} value=${value} aria-valuetext=${show(value)}
      onInput=${(/** @type {any} */ event) => onChange(Number(event.target.value))} /></div>`;
}

/** A choice among the runs of the folder. @param {{run: string, setRun: (run: string) => void, label?: string,
 *   only?: (entry: any) => boolean, empty?: string}} props */
export function RunPicker({ run, setRun, label = "Run", only = () => true, empty = "choose a run" }) {
  const { value, error } = useLatest("studio", "runs", {}, { again: run });
  const entries = (value?.runs ?? []).filter(only);
  const known = entries.some((/** @type {any} */ one) => one.name === run);
  return html`<${Field} label=${label}><select value=${run} onChange=${(/** @type {any} */ event) => setRun(event.target.value)}>
    ${known ? null : html`<option value=${run}>${run || empty}</option>`}
    ${entries.map((/** @type {any} */ one) => html`<option value=${one.name}>${one.name} · ${one.model}${one.result ? ` · ${one.result}` : ""}</option>`)}
  </select></${Field}><${Failure} error=${error} />`;
}

/** @typedef {{name: string, title: string, right?: boolean, long?: boolean, show?: (row: any) => any, by?: (row: any) => string | number | null}} Column */

/** A table that sorts by its columns and can choose rows.
 * @param {{columns: Column[], rows: any[], label: string, id?: (row: any) => string, chosen?: Set<string>,
 *   onChoose?: (id: string) => void, start?: [string, number]}} props */
export function Table({ columns, rows, label, id = (row) => row.name, chosen, onChoose, start = ["", 1] }) {
  const [[by, way], setSort] = useState(start);
  const column = columns.find((one) => one.name === by);
  const key = column ? column.by ?? ((/** @type {any} */ row) => row[column.name]) : null;
  const sorted = key ? [...rows].sort((a, b) => way * compare(key(a), key(b))) : rows;
  const sort = (/** @type {string} */ name) => setSort(by === name ? [name, -way] : [name, 1]);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => fadeEdges(box.current), []);
  const stacks = columns.some((one) => one.long); // on a phone a row is a list
  return html`<div ref=${box} class="scroll" role="region" aria-label=${label}><table class=${`sortable ${stacks ? "stacks" : ""}`}>
    <thead><tr>${onChoose && html`<th scope="col"><span class="unseen">choose</span></th>`}
      ${columns.map((one) => html`<th scope="col" class=${one.right ? "right" : ""} aria-sort=${by === one.name ? (way > 0 ? "ascending" : "descending") : null}>
        <button type="button" onClick=${() => sort(one.name)}>${one.title}<span aria-hidden="true">${by === one.name ? (way > 0 ? " ↑" : " ↓") : ""}</span></button></th>`)}</tr></thead>
    <tbody>${sorted.map((row) => html`<tr key=${id(row)} class=${chosen?.has(id(row)) ? "highlight" : ""}>
      ${onChoose && html`<td><input type="checkbox" aria-label=${`choose ${id(row)}`} checked=${chosen?.has(id(row))} onChange=${() => onChoose(id(row))} /></td>`}
      ${columns.map((one) => html`<td data-name=${one.title} class=${one.right ? "right" : one.long ? "long" : "short"}>${one.show ? one.show(row) : row[one.name]}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** Order numbers by size, texts by the alphabet, and what is missing last.
 * @param {any} a @param {any} b */
function compare(a, b) {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
  if (b === null || b === undefined) return -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
