// @ts-check
// Heads that are switched off, and what each is worth for the token at the position.
import { useLatest } from "../api.js";
import { Failure } from "../components.js";
import { html, useState } from "../vendor/preact.js";
import { amount, visible } from "./words.js";

/** @param {{asked: any, token: any, layers: any[], off: string[], setOff: (off: string[]) => void, expects: boolean}} props */
export function WhatIf({ asked, token, layers, off, setOff, expects }) {
  const switchable = layers.filter((one) => one.switchable);
  const [measured, setMeasured] = useState(false);
  const { value, error, busy } = useLatest("read", "effects", measured && asked && token ? asked : null, { delay: 150 });
  if (!switchable.length) return html`<p class="note">No heads can be switched off here.</p>`;
  const toggle = (/** @type {string} */ name) => setOff(off.includes(name) ? off.filter((one) => one !== name) : [...off, name]);
  const effects = value?.effects && asked && value.at === asked.at ? value.effects : null;
  const width = Math.max(...switchable.map((one) => one.heads));
  return html`<table class="head-switches"><caption class="unseen">Heads that are on; a click switches one off</caption>
      <thead><tr><td></td>${Array.from({ length: width }, (_, i) => html`<th scope="col">${i + 1}</th>`)}</tr></thead>
      <tbody>${switchable.map((layer, l) => html`<tr><th scope="row">${layer.title}</th>${Array.from({ length: layer.heads }, (_, h) => {
        const name = `${layer.name}:${h}`;
        const change = effects ? effects[l * width + h] : NaN;
        return html`<td><label><input type="checkbox" checked=${!off.includes(name)} aria-label=${`${layer.title}, head ${h + 1}`} onChange=${() => toggle(name)} />
          ${effects && html`<span class=${change < 0 ? "loss" : "gain"} data-head=${name} data-effect=${change}>${change > 0 ? "+" : ""}${amount(change)}</span>`}</label></td>`;
      })}</tr>`)}</tbody></table>
    <div class="tools"><button type="button" disabled=${!off.length} onClick=${() => setOff([])}>All on</button>
      ${expects && html`<button type="button" aria-pressed=${measured} onClick=${() => setMeasured(!measured)}>What is each head worth?</button>`}</div>
    <${Failure} error=${error} />
    ${busy && measured && html`<p class="hint">Measuring …</p>`}
    ${effects && html`<p class="hint">Change of the log-probability of “${visible(token.name)}”, in bits, with that head alone off: below 0, it helps.</p>`}`;
}
