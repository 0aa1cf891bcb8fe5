// @ts-check
// Heads that are switched off, what each is worth at the position, what would be expected after each block, and which
// vectors of another text carry the difference.
import { useLatest } from "../api.js";
import { Failure, Field, Figure } from "../components.js";
import { html, useState } from "../vendor/preact.js";
import { amount, percent, visible } from "./words.js";

/** @param {{asked: any, token: any, layers: any[], off: string[], setOff: (off: string[]) => void, about: any}} props */
export function WhatIf({ asked, token, layers, off, setOff, about }) {
  const switchable = layers.filter((one) => one.switchable);
  const [measured, setMeasured] = useState(false);
  const { value, error, busy } = useLatest("read", "effects", measured && asked && token ? asked : null, { delay: 150 });
  const toggle = (/** @type {string} */ name) => setOff(off.includes(name) ? off.filter((one) => one !== name) : [...off, name]);
  const effects = measured && value?.effects && asked && value.at === asked.at ? value.effects : null;
  const width = Math.max(0, ...switchable.map((one) => one.heads));
  const known = token && !Number.isNaN(token.bits); // a mask has no bits
  const what = !about.expects ? "the prediction" : known ? `“${visible(token.name)}”` : "what it expects most here";
  return html`${!switchable.length && html`<p class="note">No heads can be switched off here.</p>`}
    ${switchable.length > 0 && html`<div class="scroll"><table class="head-switches"><caption class="unseen">Heads that are on; a click switches one off</caption>
      <thead><tr><td></td>${Array.from({ length: width }, (_, i) => html`<th scope="col">${i + 1}</th>`)}</tr></thead>
      <tbody>${switchable.map((layer) => html`<tr><th scope="row">${layer.title}</th>${Array.from({ length: layer.heads }, (_, h) => {
        const name = `${layer.name}:${h}`;
        const change = effects?.[layer.name]?.[h] ?? NaN;
        return html`<td><label><input type="checkbox" checked=${!off.includes(name)} aria-label=${`${layer.title}, head ${h + 1}`} onChange=${() => toggle(name)} />
          ${effects && html`<span class=${change < 0 ? "loss" : "gain"} data-head=${name} data-effect=${change}>${change > 0 ? "+" : ""}${amount(change)}</span>`}</label></td>`;
      })}</tr>`)}</tbody></table></div>
    <div class="tools"><button type="button" disabled=${!off.length} onClick=${() => setOff([])}>All on</button>
      ${about.measures && html`<button type="button" aria-pressed=${measured} onClick=${() => setMeasured(!measured)}>What is each head worth?</button>`}</div>`}
    <${Failure} error=${error} />
    ${busy && measured && html`<p class="hint">Measuring …</p>`}
    ${effects && html`<p class="hint">Change of the log-probability of ${what}, in bits, with that head alone off: below 0, it helps.</p>`}
    ${about.measures && html`<${Lens} asked=${asked} what=${what} /><${Patch} asked=${asked} what=${what} causal=${about.causal} />`}`;
}

/** @param {{asked: any, what: string}} props */
function Lens({ asked, what }) {
  const [open, setOpen] = useState(false);
  const args = open && asked ? { run: asked.run, text: asked.text, second: asked.second, at: asked.at } : null;
  const { value, error } = useLatest("read", "lens", args, { delay: 100 });
  return html`<details onToggle=${(/** @type {any} */ e) => setOpen(e.target.open)}><summary>After each block</summary>
    <${Failure} error=${error} />${value?.note && html`<p class="note">${value.note}</p>`}
    ${value?.rows.length > 0 && html`<div class="scroll"><table class="lens"><thead><tr><th scope="col">after</th><th scope="col">expected</th><th scope="col" class="right">bits</th></tr></thead>
      <tbody>${value.rows.map((/** @type {any} */ row) => html`<tr><th scope="row">${row.layer}</th><td>${row.outputs.map((/** @type {any} */ [name, p]) => `${visible(name)} ${percent(p)}`).join(", ")}</td><td class="right" data-lens=${row.bits}>${amount(row.bits ?? NaN)}</td></tr>`)}</tbody></table></div>
      <p class="hint">What would be expected if the blocks after it were left out (the logit lens), and the bits of ${what}.</p>`}</details>`;
}

/** @param {{asked: any, what: string, causal: boolean}} props */
function Patch({ asked, what, causal }) {
  const [open, setOpen] = useState(false);
  const [other, setOther] = useState("");
  const args = open && asked && other ? { run: asked.run, text: asked.text, second: asked.second, at: asked.at, other } : null;
  const { value, error, busy } = useLatest("read", "patch", args, { delay: 400 });
  return html`<details onToggle=${(/** @type {any} */ e) => setOpen(e.target.open)}><summary>Patch from another text</summary>
    <${Field} label=${`Another text, with as many tokens${causal ? " up to here" : ""}`}><input value=${other} onInput=${(/** @type {any} */ e) => setOther(e.target.value)} /></${Field}>
    ${other && html`<${Failure} error=${error} />`}
    ${other && value?.figure && html`<div class=${busy ? "busy" : ""}><${Figure} component=${value.figure} /><p class="hint">1: the vector of the other text there gives ${what} what the other text gives it; 0: nothing changes.</p></div>`}</details>`;
}
