// @ts-check
// The film of training: what was expected in a record at each validation.
import { useLatest } from "../api.js";
import { Failure, Slider } from "../components.js";
import { html, useState } from "../vendor/preact.js";
import { inkOn, ramp, rgb } from "./colours.js";
import { percent, visible } from "./words.js";

/** @param {{run: string}} props */
export function Film({ run }) {
  const [number, setNumber] = useState(0);
  const [frame, setFrame] = useState(/** @type {number | null} */ (null));
  const [at, setAt] = useState(0);
  const { value, error, busy } = useLatest("read", "film", { run, number });
  if (!value?.steps) return html`<${Failure} error=${error} />`;
  const shown = Math.min(frame ?? value.steps.length - 1, value.steps.length - 1);
  const [, positions, top] = value.top.shape;
  const place = Math.min(at, positions - 1);
  const entries = (/** @type {number} */ f, /** @type {number} */ p) => Array.from({ length: top }, (_, k) => {
    const i = (f * positions + p) * top + k;
    return { id: value.top[i], p: Math.exp(value.logs[i]) };
  });
  const next = (/** @type {number} */ p) => (positions > 1 ? value.ids[p + 1] : undefined); // what followed
  const chance = (/** @type {number} */ p) => entries(shown, p).find((one) => one.id === next(p))?.p ?? NaN;
  const colours = ramp("ramp");
  const paint = (/** @type {number} */ p) => {
    const share = chance(p);
    if (Number.isNaN(share)) return {};
    const colour = colours[Math.round(Math.sqrt(Math.min(1, share)) * (colours.length - 1))];
    return { background: rgb(colour), color: inkOn(colour) };
  };
  return html`<section aria-label="Film of training"><h2>Film of training</h2>
    <div class="tools"><${Slider} label="Step" value=${shown} min=${0} max=${value.steps.length - 1} show=${() => value.steps[shown].toLocaleString("en")} onChange=${setFrame} />
      <div class="field"><span>Record of ${value.records}</span><div class="together"><button type="button" aria-label="previous record of the film" disabled=${!number} onClick=${() => setNumber(number - 1)}>‹</button><output>${number + 1}</output>
        <button type="button" aria-label="next record of the film" disabled=${number + 1 >= value.records} onClick=${() => setNumber(number + 1)}>›</button></div></div></div>
    <${Failure} error=${error} />
    <div class=${busy ? "busy" : ""}>
      <div class="painted film" role="group" aria-label="the record; the darker, the more probable each token was">${value.tokens.map((/** @type {string} */ name, /** @type {number} */ i) => html`<button type="button" class="token" aria-pressed=${i - 1 === place} disabled=${i < 1 || i > positions} style=${i ? paint(i - 1) : {}} onClick=${() => setAt(i - 1)}>${visible(name)}</button>`)}</div>
      <ul class="expected-list" data-frame=${shown}>${entries(shown, place).slice(0, 8).map((one) => html`<li><span class="name">${visible(value.names[one.id])}</span><span class="track"><span class="fill" style=${{ width: `${100 * one.p}%` }}></span></span><span class="number" data-film=${one.p}>${percent(one.p)}${one.id === next(place) ? " ← the text" : ""}</span></li>`)}</ul>
      <p class="hint">${positions > 1 ? `Expected after ${value.tokens.slice(0, place + 1).map(visible).join("")} at step ${value.steps[shown].toLocaleString("en")}.` : "The most probable answers."} Move the slider to see it learn.</p></div></section>`;
}
