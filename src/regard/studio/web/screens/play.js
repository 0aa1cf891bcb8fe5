// @ts-check
// Play: sampling step by step, a beam tree that grows, translations with a beginning, masks, forecasts.
import { useLatest } from "../api.js";
import { Failure, Field, Figure, RunPicker, Slider } from "../components.js";
import { html, useEffect, useState } from "../vendor/preact.js";
// @ts-ignore: made of the components of `regard look`
import { format, visible } from "/look.js";

/** @typedef {{run: string, state: Record<string, string>, setState: (patch: Record<string, any>) => void, go: Function, facts: any}} Props */

const ACTIVITIES = {
  sample: ["Sample", Sampling],
  beam: ["Beam search", Searching],
  translate: ["Translate", Translating],
  fill: ["Fill in masks", Filling],
  forecast: ["Forecast", Forecasting],
};
const TOP_KS = [0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500, 1000];
const SMALL_TREE = 90; // nodes of which all are shown at first
const PACE = 450; // milliseconds between two steps

/** @param {any} props */
export default function Play({ run, state, setRun, setState, go }) {
  const { value, error, busy } = useLatest("play", "describe", run ? { run } : null);
  const facts = value?.run === run ? value : null; // not those of the run before
  const known = facts ? facts.activities : [];
  const activity = known.includes(state.mode) ? state.mode : known[0];
  const View = activity && ACTIVITIES[/** @type {keyof typeof ACTIVITIES} */ (activity)][1];
  return html`<div class="tools"><${RunPicker} run=${run} setRun=${setRun} />
      ${known.length > 1 && html`<div class="toggle" role="group" aria-label="what to do">${known.map((/** @type {keyof typeof ACTIVITIES} */ name) =>
        html`<button type="button" aria-pressed=${String(name === activity)} onClick=${() => setState({ mode: name })}>${ACTIVITIES[name][0]}</button>`)}</div>`}</div>
    <${Failure} error=${error} />
    ${!run && html`<p>Choose a run: a language model writes, a translator translates, a masked model fills in, a forecaster forecasts.</p>`}
    ${run && busy && !facts && html`<p role="status">Loading the model…</p>`}
    ${run && facts && !activity && html`<p>This model writes nothing. <button type="button" onClick=${() => go("read", { run })}>Give it an input in Read</button></p>`}
    ${View && html`<${View} key=${`${run} ${activity}`} run=${run} state=${state} setState=${setState} go=${go} facts=${facts} />`}`;
}

/** A number that the address keeps. @param {Props} props @param {string} name @param {number} initial @returns {[number, (value: number) => void]} */
function useNumber({ state, setState }, name, initial) {
  const given = Number(state[name]);
  const value = state[name] === undefined || !Number.isFinite(given) ? initial : given;
  return [value, (next) => setState({ [name]: next === initial ? "" : next })];
}

const percent = (/** @type {number} */ p) => (p >= 0.9995 ? ">99.9%" : p > 0 && p < 0.0005 ? "<0.1%" : `${(100 * p).toFixed(1)}%`);
const bits = (/** @type {any} */ nats) => (typeof nats === "number" ? `${format(-nats / Math.LN2)} bits` : "impossible");

/** A number that grows by itself while it plays, and the buttons for it.
 * @param {number} last @param {any} anew what starts it again @param {string} unit */
function usePlayback(last, anew, unit) {
  const [at, setAt] = useState(0);
  const [playing, setPlaying] = useState(false);
  useEffect(() => setAt((old) => Math.min(old, Math.max(0, last))), [last]);
  useEffect(() => {
    if (!playing) return;
    if (at >= last) return setPlaying(false);
    const timer = setTimeout(() => setAt(at + 1), PACE);
    return () => clearTimeout(timer);
  }, [playing, at, last]);
  const move = (/** @type {number} */ to) => {
    setPlaying(false);
    setAt(Math.min(Math.max(0, to), last));
  };
  const buttons = html`<div class="playback" role="group" aria-label=${`${unit} by ${unit}`}>
    <button type="button" onClick=${() => move(0)} disabled=${at <= 0}>start</button>
    <button type="button" onClick=${() => move(at - 1)} disabled=${at <= 0}>back</button>
    <button type="button" onClick=${() => move(at + 1)} disabled=${at >= last}>next ${unit}</button>
    <button type="button" onClick=${() => { if (at >= last) setAt(0); setPlaying(!playing); }} disabled=${last <= 0}>${playing ? "pause" : "play"}</button>
    <button type="button" onClick=${() => move(last)} disabled=${at >= last}>all</button>
    <input type="range" min="0" max=${Math.max(0, last)} value=${at} aria-label=${unit} onInput=${(/** @type {any} */ event) => move(Number(event.target.value))} />
    <output>${unit} ${at + 1} of ${last + 1}</output></div>`;
  return { at, move, buttons };
}

/** @param {Props} props */
function Sampling(props) {
  const { run, state, setState, go, facts } = props;
  const prompt = state.text ?? facts.example.prompt.slice(0, Math.ceil(facts.example.prompt.length / 2));
  const [temperature, setTemperature] = useNumber(props, "temperature", 1);
  const [topK, setTopK] = useNumber(props, "top_k", 0);
  const [topP, setTopP] = useNumber(props, "top_p", 1);
  const [seed, setSeed] = useNumber(props, "seed", 0);
  const [length, setLength] = useNumber(props, "length", 40);
  const [count, setCount] = useNumber(props, "count", 4);
  const chosen = (state.chosen ?? "").split(",").filter(Boolean).map(Number);
  const choices = TOP_KS.filter((k) => k < facts.vocabulary);
  const asked = { run, prompt, chosen, temperature, top_k: topK, top_p: topP, seed, length, count };
  const { value, error, busy } = useLatest("play", "sample", asked, { delay: 60 });
  const steps = value?.steps ?? [];
  const playback = usePlayback(steps.length - 1, 0, "token");
  const step = steps[Math.min(playback.at, steps.length - 1)];
  const first = value?.samples[0];
  const drawn = (first?.tokens ?? []).slice(0, playback.at);
  const put = (/** @type {number} */ id) => {
    const before = steps.slice(0, playback.at).map((/** @type {any} */ one) => one.chosen);
    setState({ text: prompt, chosen: [...chosen, ...before, id].join(",") });
    playback.move(0);
  };
  return html`<div class="tools wide"><${Field} label="Prompt"><input value=${prompt} spellcheck="false" autocomplete="off"
        onInput=${(/** @type {any} */ event) => setState({ text: event.target.value, chosen: "" })} /></${Field}>
      ${chosen.length > 0 && html`<button type="button" onClick=${() => setState({ chosen: chosen.slice(0, -1).join(",") })}>take back the last of ${chosen.length} chosen</button>`}</div>
    <div class="tools"><${Slider} label="Temperature" value=${temperature} min=${0} max=${2} step=${0.05} onChange=${setTemperature} show=${(/** @type {number} */ t) => (t ? t.toFixed(2) : "0, greedy")} />
      <${Slider} label="Top-K" value=${Math.max(0, choices.indexOf(topK))} min=${0} max=${choices.length - 1} onChange=${(/** @type {number} */ i) => setTopK(choices[i])} show=${(/** @type {number} */ i) => (choices[i] ? String(choices[i]) : "all")} />
      <${Slider} label="Top-P" value=${topP} min=${0.05} max=${1} step=${0.01} onChange=${setTopP} show=${(/** @type {number} */ p) => (p < 1 ? p.toFixed(2) : "all")} />
      <${Slider} label="Length" value=${length} min=${1} max=${200} onChange=${setLength} show=${(/** @type {number} */ n) => `${n} tokens`} />
      <${Slider} label="Samples" value=${count} min=${1} max=${16} onChange=${setCount} />
      <${Field} label="Seed"><input type="number" min="0" value=${seed} onChange=${(/** @type {any} */ event) => setSeed(Math.max(0, Math.floor(Number(event.target.value) || 0)))} /></${Field}>
      <button type="button" onClick=${() => setSeed(seed + 1)}>draw again</button></div>
    <${Failure} error=${error} />
    ${value && html`<div class=${busy ? "columns busy" : "columns"}><section><h2>Samples</h2>
        <ol class="samples">${value.samples.map((/** @type {any} */ one, /** @type {number} */ i) => html`<li><bdi><b>${value.prompt}</b>${one.text.slice(value.prompt.length)}${one.finished ? "" : " …"}</bdi>
          <span class="score">${bits(one.score)} <button type="button" aria-label=${`read sample ${i + 1}`} onClick=${() => go("read", { run, text: one.text })}>read</button></span></li>`)}</ol>
        <p class="hint">The number is the surprise of what was drawn. The same seed draws the same again.</p></section>
      <section><h2>Step by step</h2>${playback.buttons}
        <p class="line" aria-label="the first sample up to here"><b>${visible(value.prompt)}</b>${drawn.map((/** @type {string} */ token) => visible(token)).join("")}<span class="cursor">▏</span></p>
        ${step && html`<${Filters} step=${step} put=${put} />`}</section></div>`}`;
}

/** What may come next, before and after the filters. @param {{step: any, put: (id: number) => void}} props */
function Filters({ step, put }) {
  const most = Math.max(...step.before, ...step.after, 1e-9);
  const bar = (/** @type {number} */ p, /** @type {string} */ name) => html`<span class="track"><i class=${name} style=${{ width: `${(100 * p) / most}%` }}></i></span>`;
  return html`<table class="filters"><caption>${format(step.n_kept)} of ${format(step.possible)} tokens stay; they held ${percent(step.mass)} before</caption>
    <thead><tr><th scope="col">next</th><th scope="col" colspan="2">of the model</th><th scope="col" colspan="2">after the filters</th></tr></thead>
    <tbody>${step.ids.map((/** @type {number} */ id, /** @type {number} */ i) => html`<tr class=${id === step.chosen ? "drawn" : step.after[i] ? "" : "cut"}>
      <th scope="row"><button type="button" title="put it into the text" onClick=${() => put(id)}>${visible(step.tokens[i])}</button>${id === step.chosen ? html`<span class="unseen"> drawn</span>` : ""}</th>
      <td class="number before">${percent(step.before[i])}</td><td>${bar(step.before[i], "quiet")}</td>
      <td class="number after" data-value=${step.after[i]}>${step.after[i] ? percent(step.after[i]) : "cut"}</td><td>${step.after[i] ? bar(step.after[i], "") : null}</td></tr>`)}</tbody></table>
    <p class="hint">Order: temperature, then top-K, then top-P on what is left. The filled row was drawn; choose a token to put it into the text instead.</p>`;
}

/** The tree up to a step: the best path so far leads to the best node. @param {any} tree @param {number} last @param {number} penalty
 * @param {boolean} dropped whether nodes that were dropped at once are shown */
function partOfTree(tree, last, penalty, dropped) {
  const nodes = tree.data.nodes.filter((/** @type {any} */ node) => node.step <= last && (dropped || node.kept));
  const byId = new Map(nodes.map((/** @type {any} */ node) => [node.id, node]));
  const rank = (/** @type {any} */ node) => node.score / Math.max(1, node.step) ** penalty;
  const ends = nodes.filter((/** @type {any} */ node) => node.kept && (node.finished || node.step === last));
  const path = [];
  let at = ends.reduce((/** @type {any} */ best, /** @type {any} */ node) => (!best || rank(node) > rank(best) ? node : best), null) ?? nodes[0];
  while (at) {
    path.unshift(at.id);
    at = byId.get(at.parent);
  }
  return { kind: tree.kind, data: { ...tree.data, nodes, path } };
}

/** A search that grows step by step, with the nodes of the step.
 * @param {{tree: any, penalty: number}} props */
function Growing({ tree, penalty }) {
  const last = tree.data.nodes.reduce((/** @type {number} */ a, /** @type {any} */ node) => Math.max(a, node.step), 0);
  const [dropped, setDropped] = useState(tree.data.nodes.length <= SMALL_TREE);
  const playback = usePlayback(Math.max(0, last - 1), 0, "step");
  useEffect(() => playback.move(last), [JSON.stringify(tree.data.path), last]);
  const at = playback.at + 1;
  const byId = new Map(tree.data.nodes.map((/** @type {any} */ node) => [node.id, node]));
  const now = tree.data.nodes.filter((/** @type {any} */ node) => node.step === at);
  const own = (/** @type {any} */ node) => node.score - (byId.get(node.parent)?.score ?? 0);
  return html`${playback.buttons}
    <label class="check"><input type="checkbox" checked=${dropped} onChange=${() => setDropped(!dropped)} /> candidates that were dropped at once, too</label>
    <${Figure} component=${at >= last && dropped ? tree : partOfTree(tree, at, penalty, dropped)} label="beam tree" />
    <details><summary>The ${now.length} candidates of step ${at}, with log-probabilities</summary>
      <div class="scroll"><table><thead><tr><th scope="col">token</th><th scope="col">after</th><th scope="col" class="right">log p of the token</th><th scope="col" class="right">log p so far</th><th scope="col">fate</th></tr></thead>
      <tbody>${now.map((/** @type {any} */ node) => html`<tr><td class="mono">${visible(node.token)}</td><td class="mono">${visible(byId.get(node.parent)?.token ?? "")}</td><td class="right">${format(own(node))}</td><td class="right">${format(node.score)}</td>
        <td>${node.finished ? "finished" : node.kept ? "kept" : "dropped"}</td></tr>`)}</tbody></table></div></details>`;
}

/** @param {{results: any[], run: string, go: Function}} props */
function Results({ results, run, go }) {
  return html`<ol class="samples">${results.map((one) => html`<li><bdi>${one.text}${one.finished ? "" : " …"}</bdi>
    <span class="score">${format(one.score)} <button type="button" onClick=${() => go("read", { run, text: one.text })}>read</button></span></li>`)}</ol>
    <p class="hint">The number is the log-probability divided by the length to the power of the penalty: what the search ranks by.</p>`;
}

/** @param {Props} props */
function Searching(props) {
  const { run, state, setState, go, facts } = props;
  const prompt = state.text ?? facts.example.prompt.slice(0, Math.ceil(facts.example.prompt.length / 2));
  const [width, setWidth] = useNumber(props, "width", 4);
  const [penalty, setPenalty] = useNumber(props, "penalty", 0);
  const [steps, setSteps] = useNumber(props, "steps", 12);
  const { value, error, busy } = useLatest("play", "beam", { run, prompt, width, length_penalty: penalty, steps }, { delay: 60 });
  return html`<div class="tools wide"><${Field} label="Prompt"><input value=${prompt} spellcheck="false" autocomplete="off" onInput=${(/** @type {any} */ event) => setState({ text: event.target.value })} /></${Field}></div>
    <div class="tools"><${Slider} label="Width" value=${width} min=${1} max=${12} onChange=${setWidth} show=${(/** @type {number} */ n) => `${n} beams`} />
      <${Slider} label="Length penalty" value=${penalty} min=${0} max=${2} step=${0.1} onChange=${setPenalty} show=${(/** @type {number} */ p) => p.toFixed(1)} />
      <${Slider} label="Most steps" value=${steps} min=${1} max=${60} onChange=${setSteps} /></div>
    <${Failure} error=${error} />
    ${value && html`<div class=${busy ? "busy" : ""}><${Growing} tree=${value.tree} penalty=${penalty} /><h2>Best sequences</h2><${Results} results=${value.results} run=${run} go=${go} /></div>`}`;
}

/** @param {Props} props */
function Translating(props) {
  const { run, state, setState, go, facts } = props;
  const reads = facts.example.prompt !== "" || !facts.example.records; // texts, in contrast to images
  const source = state.text ?? facts.example.prompt;
  const [record, setRecord] = useNumber(props, "record", reads ? -1 : 0);
  const [width, setWidth] = useNumber(props, "width", 5);
  const [penalty, setPenalty] = useNumber(props, "penalty", 1);
  const [place, setPlace] = useState(0);
  const ids = (state.prefix_ids ?? "").split(",").filter(Boolean).map(Number);
  const prefix = state.prefix ?? "";
  const given = ids.length ? { prefix_ids: ids } : { prefix };
  const asked = { run, source, record, width, length_penalty: penalty, ...given };
  const { value, error, busy } = useLatest("play", "translate", source || record >= 0 ? asked : null, { delay: 120 });
  const row = value?.alternatives[Math.min(place, value.alternatives.length - 1)];
  const at = value ? Math.min(place, value.ids.length - 1) : 0;
  const choose = (/** @type {number} */ id) => setState({ prefix: "", prefix_ids: [...value.ids.slice(0, at), id].join(",") });
  return html`<div class="tools wide">
      ${reads && html`<${Field} label="Source"><textarea rows="2" spellcheck="false" value=${source} onInput=${(/** @type {any} */ event) => setState({ text: event.target.value, prefix: "", prefix_ids: "" })}></textarea></${Field}>`}
      <${Field} label="Beginning, kept as it is" hint="type it, or choose another word below: the model goes on from there"><input spellcheck="false" autocomplete="off" value=${ids.length ? value?.prefix ?? "" : prefix}
        onInput=${(/** @type {any} */ event) => setState({ prefix: event.target.value, prefix_ids: "" })} /></${Field}></div>
    <div class="tools">${!reads && html`<${Slider} label="Held-out record" value=${record} min=${0} max=${facts.example.records - 1} onChange=${(/** @type {number} */ n) => { setState({ prefix: "", prefix_ids: "" }); setRecord(n); }} show=${(/** @type {number} */ n) => `${n + 1} of ${facts.example.records}`} />`}
      <${Slider} label="Width" value=${width} min=${1} max=${12} onChange=${setWidth} show=${(/** @type {number} */ n) => `${n} beams`} />
      <${Slider} label="Length penalty" value=${penalty} min=${0} max=${2} step=${0.1} onChange=${setPenalty} show=${(/** @type {number} */ p) => p.toFixed(1)} />
      ${(prefix || ids.length > 0) && html`<button type="button" onClick=${() => setState({ prefix: "", prefix_ids: "" })}>no beginning</button>`}</div>
    <${Failure} error=${error} />
    ${value && html`<div class=${busy ? "busy" : ""}>
      ${value.unknown > 0 && html`<p class="notice" role="note">${value.unknown} of the tokens of the beginning are not in the vocabulary.</p>`}
      <${Figure} component=${value.picture} />
      <h2>${value.makes === "caption" ? "Caption" : "Translation"}</h2><p class="target">${value.text}</p>
      <div class="words" role="group" aria-label="tokens; choose one to see what else may stand there">${value.tokens.map((/** @type {string} */ token, /** @type {number} */ i) => html`<button type="button" key=${i} aria-pressed=${String(i === at)} class=${i < value.prefix_ids.length ? "given" : ""}
        title=${i < value.prefix_ids.length ? "of the beginning" : percent(value.alternatives[i][0][2])} onClick=${() => setPlace(i)}>${visible(token)}</button>`)}</div>
      ${row && html`<div class="others" role="group" aria-label=${`what may stand at place ${at + 1}`}><span>Place ${at + 1}:</span> ${row.map((/** @type {any} */ [id, token, p], /** @type {number} */ i) => html`<button type="button" key=${id} disabled=${i === 0} onClick=${() => choose(id)}>${visible(token)} <small>${percent(p)}</small></button>`)}</div>`}
      ${value.figures.map((/** @type {any} */ figure, /** @type {number} */ i) => html`<${Figure} key=${i} component=${figure} />`)}
      <h2>The best ${value.results.length}</h2><${Results} results=${value.results} run=${run} go=${(/** @type {string} */ screen, /** @type {any} */ more) => go(screen, record >= 0 ? { run, record } : { run, text: source, second: more.text })} />
      <details><summary><h2>Beam search</h2></summary><${Growing} tree=${value.tree} penalty=${penalty} /></details></div>`}`;
}

/** @param {Props} props */
function Filling(props) {
  const { run, state, setState } = props;
  const text = state.text ?? "";
  const masked = /<mask>|\[MASK\]/;
  const { value, error, busy } = useLatest("play", "fill", masked.test(text) ? { run, text } : null, { delay: 120 });
  const fill = (/** @type {number} */ number, /** @type {string} */ token) => {
    let seen = -1;
    setState({ text: text.replace(/<mask>|\[MASK\]/g, (mask) => (++seen === number ? token : mask)) });
  };
  return html`<div class="tools wide"><${Field} label="Text" hint="write <mask> where a token is to be filled in"><textarea rows="2" spellcheck="false" value=${text} onInput=${(/** @type {any} */ event) => setState({ text: event.target.value })}></textarea></${Field}>
      <button type="button" onClick=${() => setState({ text: `${text}<mask>` })}>add a mask</button></div>
    <${Failure} error=${error} />
    ${value && masked.test(text) && html`<div class=${busy ? "columns busy" : "columns"}>${value.masks.map((/** @type {any} */ mask, /** @type {number} */ number) => html`<section><h2>Mask ${number + 1}</h2>
      <table class="filters"><tbody>${mask.candidates.map((/** @type {any} */ one) => html`<tr><th scope="row"><button type="button" onClick=${() => fill(number, one.token)}>${visible(one.token)}</button></th>
        <td class="number" data-value=${one.probability}>${percent(one.probability)}</td><td><span class="track"><i style=${{ width: `${100 * one.probability / mask.candidates[0].probability}%` }}></i></span></td></tr>`)}</tbody></table></section>`)}</div>
      <p class="hint">All masks are unknown together. Choose a token to fill it in.</p>`}`;
}

/** @param {Props} props */
function Forecasting(props) {
  const { run, facts } = props;
  const last = Math.max(0, facts.example.records - 1);
  const [window, setWindow] = useNumber(props, "window", last);
  const { value, error, busy } = useLatest("play", "forecast", { run, window }, { delay: 60 });
  return html`<div class="tools wide"><${Slider} label="Held-out window" value=${window} min=${0} max=${last} onChange=${setWindow} show=${(/** @type {number} */ n) => `${n + 1} of ${last + 1}`} /></div>
    <${Failure} error=${error} />
    ${value && html`<div class=${busy ? "busy" : ""}><${Figure} component=${value.answer} />
      ${value.charts.map((/** @type {any} */ chart, /** @type {number} */ i) => html`<${Figure} key=${i} component=${chart} />`)}
      <p class="hint">The band holds 80% of such forecasts, by the errors of the windows before.</p></div>`}`;
}
