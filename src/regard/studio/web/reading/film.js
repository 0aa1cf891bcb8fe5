// @ts-check
// The film of training: what was expected in a record at each validation, all records as points, and what heads did.
import { useLatest } from "../api.js";
import { Failure, Figure, Slider } from "../components.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { inkOn, ramp, rgb } from "./colours.js";
import { FilmHeads } from "./film_heads.js";
import { FilmMap } from "./film_map.js";
import { percent, visible } from "./words.js";

const PAUSE = 600; // milliseconds for a step of the film

/** @param {{run: string, layers: any[], setState: (patch: any) => void}} props */
export function Film({ run, layers, setState }) {
  const [number, setNumber] = useState(0);
  const [frame, setFrame] = useState(/** @type {number | null} */ (null));
  const [playing, setPlaying] = useState(false);
  const record = useLatest("read", "film", { run, number });
  const { value: whole, error, busy } = useLatest("read", "film_map", { run });
  const steps = whole?.steps ?? [];
  const last = steps.length - 1;
  const shown = Math.min(frame ?? last, last);
  useEffect(() => {
    if (!playing) return;
    const timer = setTimeout(() => (shown < last ? setFrame(shown + 1) : setPlaying(false)), PAUSE);
    return () => clearTimeout(timer);
  }, [playing, shown, last]);
  if (!steps.length) return html`<${Failure} error=${error} />${busy && html`<p class="note">Opening the film of training …</p>`}`;
  const play = () => {
    if (!playing && shown === last) setFrame(0);
    setPlaying(!playing);
  };
  const scrub = (/** @type {number} */ next) => {
    setPlaying(false);
    setFrame(next);
  };
  return html`<section class="film-of-training" aria-label="Film of training"><h2>Film of training</h2>
    <div class="tools film-tools"><${Slider} label="Step" value=${shown} min=${0} max=${last} show=${() => steps[shown].toLocaleString("en")} onChange=${scrub} />
      <button type="button" aria-pressed=${playing} onClick=${play}>${playing ? "Pause" : "Play"}</button>
      <div class="field"><span>Record of ${whole.numbers.length}</span><div class="together"><button type="button" aria-label="previous record of the film" disabled=${!number} onClick=${() => setNumber(number - 1)}>‹</button><output>${number + 1}</output>
        <button type="button" aria-label="next record of the film" disabled=${number + 1 >= whole.numbers.length} onClick=${() => setNumber(number + 1)}>›</button></div></div></div>
    <div class="film-parts"><div><${Failure} error=${record.error} />${record.value?.steps && html`<div class=${record.busy ? "busy" : ""}><${FilmRecord} value=${record.value} shown=${Math.min(shown, record.value.steps.length - 1)} /></div>`}
        <${FilmHeads} value=${whole} shown=${shown} layers=${layers} setState=${setState} /></div>
      <${FilmMap} value=${whole} shown=${shown} number=${number} setNumber=${setNumber} /></div></section>`;
}

/** What was expected in one record. @param {{value: any, shown: number}} props */
function FilmRecord({ value, shown }) {
  const [, positions, top] = value.top.shape;
  const [at, setAt] = useState(value.predicts ? 0 : 1); // not at <S>, of which only the next token is predicted
  const place = Math.min(at, positions - 1);
  const many = positions > 1;
  const entries = (/** @type {number} */ p) => Array.from({ length: top }, (_, k) => {
    const i = (shown * positions + p) * top + k;
    return { id: value.top[i], p: Math.exp(value.logs[i]) };
  });
  const chance = (/** @type {number} */ p) => entries(p).find((one) => one.id === value.truths[p])?.p ?? NaN;
  const colours = ramp("ramp");
  const paint = (/** @type {number} */ p) => {
    const share = many ? chance(p) : NaN;
    if (Number.isNaN(share)) return {};
    const colour = colours[Math.round(Math.sqrt(Math.min(1, share)) * (colours.length - 1))];
    return { background: rgb(colour), color: inkOn(colour) };
  };
  const before = value.predicts ? 1 : 0; // a token is painted by what the position before it says
  const token = (/** @type {string} */ name, /** @type {number} */ i) => {
    const p = i - before;
    if (!many) return html`<span class="token">${visible(name)}</span>`;
    return html`<button type="button" class="token" aria-pressed=${p === place} disabled=${p < 0 || p >= positions} style=${p < 0 ? {} : paint(p)} onClick=${() => setAt(p)}>${visible(name)}</button>`;
  };
  const step = value.steps[shown].toLocaleString("en");
  const here = value.tokens[place + before];
  const what = value.predicts ? `Expected after ${value.tokens.slice(0, place + 1).map(visible).join("")} at step ${step}` : `Expected at ${visible(here ?? "")}, which the model reads, at step ${step}`;
  return html`<h3>One record</h3>${value.picture && html`<${Figure} component=${value.picture} label="the record" />`}
    ${value.tokens.length > 0 && html`<div class="painted film" role="group" aria-label=${many ? "the record; the darker, the more probable what is true" : "the record"}>${value.tokens.map(token)}</div>`}
    <ul class="expected-list" data-frame=${shown}>${entries(place).slice(0, 8).map((one) => html`<li><span class="name">${visible(value.names[one.id])}</span><span class="track"><span class="fill" style=${{ width: `${100 * one.p}%` }}></span></span><span class="number" data-film=${one.p}>${percent(one.p)}${one.id === value.truths[place] ? " ← true" : ""}</span></li>`)}</ul>
    <p class="hint">${many ? `${what}.` : `The most probable answers at step ${step}.`}</p>`;
}
