// @ts-check
// What each head of attention did at each validation: a small curve for every layer and head.
import { Field } from "../components.js";
import { html, useState } from "../vendor/preact.js";
import { amount } from "./words.js";

const [WIDTH, HEIGHT, EDGE] = [84, 34, 3];

/** @param {{value: any, shown: number, layers: any[], setState: (patch: any) => void}} props */
export function FilmHeads({ value, shown, layers, setState }) {
  const [measure, setMeasure] = useState(Object.keys(value.measures)[0]);
  if (!value.layers.length) return null;
  const curves = value.heads[measure];
  const most = Math.max(1, ...curves.map((/** @type {Float32Array} */ one) => one.reduce((a, b) => Math.max(a, b), 0)));
  const width = Math.max(...curves.map((/** @type {any} */ one) => one.shape[1]));
  const known = new Set(layers.map((one) => one.name));
  const pick = (/** @type {string} */ layer, /** @type {number} */ head) => {
    setState({ layer, head: String(head) });
    document.querySelector("section[aria-label='Where it looked']")?.scrollIntoView({ block: "nearest" });
  };
  const cell = (/** @type {any} */ layer, /** @type {any} */ curve, /** @type {number} */ head) => {
    const at = (/** @type {number} */ frame) => curve[frame * curve.shape[1] + head];
    const label = `${layer.title}, head ${head + 1}: ${value.measures[measure]} ${amount(at(shown))}; ${amount(at(0))} at first, ${amount(at(value.steps.length - 1))} at last`;
    const inside = html`<${Curve} values=${value.steps.map((/** @type {number} */ _, /** @type {number} */ f) => at(f))} steps=${value.steps} shown=${shown} most=${most} /><span class="number" data-head-film=${`${layer.name}:${head}`} data-value=${at(shown)}>${amount(at(shown))}</span>`;
    return known.has(layer.name)
      ? html`<td><button type="button" class="head-film" aria-label=${`${label}; show where it looks`} title=${label} onClick=${() => pick(layer.name, head)}>${inside}</button></td>`
      : html`<td><span class="head-film" role="img" aria-label=${label}>${inside}</span></td>`;
  };
  return html`<div class="film-heads"><h3>Heads of attention</h3>
    <div class="tools"><${Field} label="What a head does"><select value=${measure} onChange=${(/** @type {any} */ event) => setMeasure(event.target.value)}>${Object.entries(value.measures).map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select></${Field}></div>
    <div class="scroll"><table><caption class="unseen">${value.measures[measure]} of each head, step by step</caption>
      <thead><tr><td></td>${Array.from({ length: width }, (_, head) => html`<th scope="col">head ${head + 1}</th>`)}</tr></thead>
      <tbody>${value.layers.map((/** @type {any} */ layer, /** @type {number} */ k) => html`<tr><th scope="row">${layer.title}</th>${Array.from({ length: curves[k].shape[1] }, (_, head) => cell(layer, curves[k], head))}</tr>`)}</tbody></table></div>
    <p class="hint">${capital(value.measures[measure])}, the mean over the ${value.numbers.length} records; from 0 to ${amount(most)}, step ${value.steps[0].toLocaleString("en")} to ${value.steps[value.steps.length - 1].toLocaleString("en")}.${known.size > 0 && " A click shows where that head looks in the text above."}</p></div>`;
}

/** @param {{values: number[], steps: number[], shown: number, most: number}} props */
function Curve({ values, steps, shown, most }) {
  const last = steps[steps.length - 1] || 1;
  const x = (/** @type {number} */ i) => EDGE + ((WIDTH - 2 * EDGE) * (steps[i] - steps[0])) / (last - steps[0] || 1);
  const y = (/** @type {number} */ i) => HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * values[i]) / most;
  const line = values.map((_, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(i).toFixed(1)}`).join("");
  return html`<svg width=${WIDTH} height=${HEIGHT} aria-hidden="true"><path class="ground" d=${`M${EDGE} ${HEIGHT - EDGE}H${WIDTH - EDGE}`} /><path class="curve" d=${line} /><circle cx=${x(shown)} cy=${y(shown)} r="3" /></svg>`;
}

const capital = (/** @type {string} */ text) => text[0].toUpperCase() + text.slice(1);
