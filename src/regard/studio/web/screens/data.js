// @ts-check
import { useLatest } from "../api.js";
import { Command, Failure, Field, Figure, PageView, RunPicker } from "../components.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { Question } from "./train.js";

/** @param {Record<string, any>} props */
export default function Data({ run, file = "", input = "", target = "", task = "", label = "", split = "", text = "", first = "0", view = "report", setState, setRun }) {
  const [typed, setTyped] = useState(file);
  useEffect(() => setTyped(file), [file]);
  const source = run || file ? { files: run ? [] : [file], run, input, target, task } : null;
  const { value: choices } = useLatest("train", "choices", {});
  const look = useLatest("train", "look", !run && file ? { files: [file], input, target, task } : null);
  const question = !run && file && look.value?.question;
  const open = (/** @type {Event} */ event) => {
    event.preventDefault();
    setState({ file: typed, run: "", label: "", split: "", text: "", first: "", input: "", target: "", task: "" });
  };
  return html`<form class="tools" onSubmit=${open}>
      <${Field} label="A file or folder"><input list="files" value=${typed} placeholder="names.txt" onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} /></${Field}>
      <datalist id="files">${(choices?.files ?? []).map((/** @type {string} */ name) => html`<option value=${name} />`)}</datalist>
      <button class="main">Look at it</button>
      <${RunPicker} run=${run} setRun=${(/** @type {string} */ name) => setRun(name)} label="or what a run was trained on" />
    </form>
    ${question && html`<${Question} question=${question} columns=${look.value.columns} setState=${setState} />`}
    ${source && !question && html`<div class="toggle" role="group" aria-label="views">${["report", "records"].map((name) => html`<button type="button" aria-pressed=${name === view} onClick=${() => setState({ view: name })}>${name}</button>`)}</div>`}
    ${question ? null : source ? view === "report" ? html`<${Report} source=${source} />` : html`<${Records} source=${source} label=${label} split=${split} text=${text} first=${Number(first) || 0} setState=${setState} />`
      : html`<p>Choose a file of the folder in which the studio was started, or a run. <a href="#/train">Train</a> takes files that you drop.</p>`}`;
}

/** @param {{source: any}} props */
function Report({ source }) {
  const { value, error, busy } = useLatest("data", "report", source);
  return html`<${Failure} error=${error} />${busy && !value && html`<p role="status">Reading …</p>`}
    ${value && html`<${Command} command=${value.command} /><${PageView} page=${value.page} />`}`;
}

/** Records by label, split and text. @param {Record<string, any>} props */
function Records({ source, label, split, text, first, setState }) {
  const { value, error } = useLatest("data", "records", { ...source, label, split, text, first }, { delay: 150 });
  const filter = (/** @type {Record<string, any>} */ patch) => setState({ first: "", ...patch });
  const pick = (/** @type {string} */ name, /** @type {string} */ chosen, /** @type {[string, number][]} */ options) => html`<${Field} label=${name}>
    <select value=${chosen} onChange=${(/** @type {any} */ event) => filter({ [name]: event.target.value })}><option value="">all</option>
      ${chosen && !options.some(([one]) => one === chosen) && html`<option value=${chosen}>${chosen} (0)</option>`}
      ${options.map(([one, count]) => html`<option value=${one}>${one} (${count.toLocaleString("en")})</option>`)}</select></${Field}>`;
  return html`<section aria-label="records"><${Failure} error=${error} />
    ${value && html`<div class="tools">
        ${value.labels.length > 0 || label ? pick("label", label, value.labels) : null}${pick("split", split, value.splits)}
        <${Field} label="contains"><input type="search" value=${text} onInput=${(/** @type {any} */ event) => filter({ text: event.target.value })} /></${Field}>
        <span role="status">${value.found.toLocaleString("en")} of ${value.all.toLocaleString("en")}${value.cut ? ", the first that were read" : ""}</span></div>
      ${value.pictures ? html`<${Gallery} key=${JSON.stringify(source)} source=${source} records=${value.records} noun=${value.noun} filter=${filter} />` : html`<${Rows} records=${value.records} filter=${filter} />`}
      <div class="tools after"><button type="button" disabled=${first <= 0} onClick=${() => setState({ first: Math.max(0, first - value.per_page) })}>Before</button>
        <span>${value.found ? first + 1 : 0} to ${Math.min(first + value.per_page, value.found)}</span>
        <button type="button" disabled=${first + value.per_page >= value.found} onClick=${() => setState({ first: first + value.per_page })}>Next</button></div>`}</section>`;
}

/** The labels of a record; each shows the others that have it. @param {{record: any, filter: (patch: object) => void}} props */
const Labels = ({ record, filter }) => record.labels.map((/** @type {string} */ name) => html`<button type="button" class="link" onClick=${() => filter({ label: name })}>${name}</button> `);

/** Records as texts. @param {{records: any[], filter: (patch: object) => void}} props */
function Rows({ records, filter }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="records"><table><thead><tr><th scope="col">place</th><th scope="col">split</th><th scope="col">label</th><th scope="col">record</th></tr></thead>
    <tbody>${records.map((one) => html`<tr><td class="short">${one.location}</td><td>${one.split}</td><td><${Labels} record=${one} filter=${filter} /></td>
      <td class="record">${one.source && html`<div>${one.source}</div>`}${one.text}${one.cut && " …"}</td></tr>`)}</tbody></table></div>`;
}

/** Records as pictures, which are drawn after the list. @param {{source: any, records: any[], noun: string, filter: (patch: object) => void}} props */
function Gallery({ source, records, noun, filter }) {
  const numbers = records.map((one) => one.number);
  const { value, error } = useLatest("data", "pictures", { ...source, numbers });
  return html`<${Failure} error=${error} /><ul class="gallery" aria-label="records">${records.map((one) => html`<li key=${one.number}>
    <${Figure} component=${value?.pictures[one.number] ?? null} label=${`${noun} ${one.number + 1}${one.labels.length ? `, ${one.labels.join(", ")}` : ""}`} />
    ${one.text && value && value.pictures[one.number]?.data.picture.text !== one.text && html`<span class="caption">${one.text}${one.cut && " …"}</span>`}
    <span><${Labels} record=${one} filter=${filter} /></span><small>${one.location} ${one.split}</small></li>`)}</ul>`;
}
