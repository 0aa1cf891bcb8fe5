// @ts-check
// The settings of a recipe, found by name or meaning, and a field for each that is chosen.
import { useLatest } from "./api.js";
import { Failure, Field } from "./components.js";
import { html, useState } from "./vendor/preact.js";

/** @typedef {{key: string, name: string, of: string[], default: string, values: string, choices: string[], what: string, field: string}} Setting */

/** The lines of a text that hold something. @param {string} text */
export const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** The settings of a text that have a value, KEY=VALUE. @param {string} text */
export const given = (text) => lines(text).filter((line) => !/^[^=]*=?$/.test(line));

/** How a setting is written on the command line. @param {string} name */
const option = (name) => (name.includes(".") ? `--set ${name}` : `--${name.replaceAll("_", "-")}`);

/** Whether a setting is one of this task, of data of these kinds, or of this model, as far as they are known.
 * @param {Setting} one @param {{task: string, model: string, modalities: string[]}} known */
function fits(one, { task, model, modalities }) {
  const of = { task: [task], input: modalities, model: [model] }[one.key.split(".")[0]] ?? [];
  return !one.of.length || !of.some(Boolean) || one.of.some((name) => of.includes(name));
}

/** Whether a setting is one of all the kinds that the data may be of, or of the task that is chosen.
 * @param {Setting} one @param {string} task @param {string[]} modalities */
function isOwn(one, task, modalities) {
  if (one.field || one.name.includes(".")) return false; // only options of their own
  if (one.key.startsWith("task.")) return one.of.includes(task);
  return one.key.startsWith("input.") && modalities.length > 0 && modalities.every((name) => one.of.includes(name));
}

/** @param {{settings: string, task: string, model: string, modalities: string[], setState: (patch: object) => void}} props */
export function Settings({ settings, task, model, modalities, setState }) {
  const [search, setSearch] = useState("");
  const { value, error } = useLatest("train", "settings", {});
  /** @type {Setting[]} */
  const all = value?.settings ?? [];
  const chosen = lines(settings).map((line) => [line.split("=", 1)[0], line.slice(line.indexOf("=") + 1)]);
  const write = (/** @type {string[][]} */ pairs) => setState({ settings: pairs.map((pair) => pair.join("=")).join("\n") });
  const add = (/** @type {string} */ name, text = "") => write([...chosen.filter(([one]) => one !== name), [name, text]]);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter((one) => (words.length ? words.every((word) => `${one.key} ${one.what} ${one.of.join(" ")}`.toLowerCase().includes(word)) : fits(one, { task, model, modalities })));
  const own = all.filter((one) => isOwn(one, task, modalities) && !chosen.some(([name]) => name === one.name));
  const enter = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const first = shown.find((one) => !one.field);
    const [name, ...rest] = search.split("=");
    if (rest.length) add(name.trim(), rest.join("=").trim());
    else if (first) add(first.name);
    setSearch("");
  };
  return html`<${Failure} error=${error} />
    ${chosen.length > 0 && html`<div class="tools chosen">${chosen.map(([name, text]) => html`<${Chosen} key=${name} name=${name} text=${text} row=${all.find((one) => one.name === name)}
      onChange=${(/** @type {string} */ typed) => write(chosen.map((pair) => (pair[0] === name ? [name, typed] : pair)))}
      onRemove=${() => write(chosen.filter(([one]) => one !== name))} />`)}</div>`}
    ${own.length > 0 && html`<p class="own" role="group" aria-label="settings of these data"><span>For these data:</span> ${own.map((one) => html`<button type="button" key=${one.key} title=${`${one.what} (${one.values})`} onClick=${() => add(one.name)}>${option(one.name)}</button>`)}</p>`}
    <details class="settings"><summary>All settings</summary>
      <form class="tools" onSubmit=${enter}><${Field} label="Find a setting" hint="by name or meaning; Enter adds the first, or KEY=VALUE as it is typed"><input type="search" value=${search} spellcheck="false" onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} /></${Field}>
        <span role="status">${shown.length} of ${all.length}${words.length ? "" : ": those of this task, data and model"}</span></form>
      <div class="list" tabindex="0" role="region" aria-label="settings"><ul>${shown.map((one) => html`<li key=${one.key}>
        ${one.field ? html`<b>${one.key}</b>` : html`<button type="button" class="link" aria-pressed=${String(chosen.some(([name]) => name === one.name))} onClick=${() => add(one.name)}>${one.name}</button>`}
        <span>${one.what}</span>
        <small>${[one.field ? `set by ${one.field}` : "", one.values, one.default && `default ${one.default}`, one.of.length ? `of ${one.of.join(", ")}` : ""].filter(Boolean).join(" · ")}</small></li>`)}</ul></div>
    </details>`;
}

/** A setting with its value. @param {{name: string, text: string, row?: Setting, onChange: (text: string) => void, onRemove: () => void}} props */
function Chosen({ name, text, row, onChange, onRemove }) {
  const change = (/** @type {any} */ event) => onChange(event.target.value);
  const none = row?.default ? `default: ${row.default}` : "";
  const control = row?.choices.length
    ? html`<select value=${text} onChange=${change}><option value="">${none || "choose"}</option>${row.choices.map((one) => html`<option>${one}</option>`)}</select>`
    : html`<input value=${text} placeholder=${none} spellcheck="false" onInput=${change} />`;
  return html`<div class="setting"><${Field} label=${option(name)} hint=${row ? `${row.what}${row.choices.length ? "" : ` (${row.values})`}` : ""}>${control}</${Field}>
    <button type="button" aria-label=${`remove ${option(name)}`} onClick=${onRemove}>remove</button></div>`;
}
