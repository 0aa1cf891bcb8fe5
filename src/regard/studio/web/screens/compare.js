// @ts-check
// Two models or two inputs side by side, and the rows of a comparison on one text.
import { useLatest } from "../api.js";
import { Failure, Field, Figure, RunPicker } from "../components.js";
import { useStyles } from "../reading/colours.js";
import { html, useEffect, useState } from "../vendor/preact.js";

/** @param {{run: string, state: Record<string, string>, setRun: (run: string) => void, setState: (patch: any) => void, go: (screen: string, state: any) => void}} props */
export default function Compare({ run, state, setState, go }) {
  useStyles();
  const about = useLatest("compare", "about", run ? { run } : null);
  const entry = about.value?.run === run ? about.value : null;
  const rows = useLatest("compare", "rows", entry?.comparison ? { folder: run } : null);
  return html`<div class="tools"><${RunPicker} label="Left, or a comparison" run=${run} setRun=${(/** @type {string} */ name) => go("compare", { ...state, run: name })} />
      ${!entry?.comparison && html`<${RunPicker} label="Right" run=${state.other ?? ""} setRun=${(/** @type {string} */ name) => setState({ other: name })} empty="the same model" />`}</div>
    <${Failure} error=${about.error ?? rows.error} />
    ${!run && html`<p class="note">Choose two models, or a comparison that <code>regard compare</code> made.</p>`}
    ${entry?.comparison ? html`<${Rows} key=${run} folder=${run} value=${rows.value} state=${state} setState=${setState} go=${go} />` : entry ? html`<${Pair} key=${run} run=${run} state=${state} setState=${setState} go=${go} />` : null}`;
}

/** All rows of a comparison. @param {{folder: string, value: any, state: any, setState: (patch: any) => void, go: (screen: string, state: any) => void}} props */
function Rows({ folder, value, state, setState, go }) {
  const [text, setText] = useState(state.text ?? "");
  const [second, setSecond] = useState(state.target ?? "");
  const strips = useLatest("compare", "strips", value?.scores ? { folder, text, second: value.paired ? second : "" } : null, { delay: 200 });
  useEffect(() => {
    if (!strips.value || text) return;
    setText(strips.value.text);
    setSecond(strips.value.second);
  }, [strips.value]);
  if (!value) return null;
  const change = (/** @type {string} */ one, /** @type {string} */ two) => {
    setText(one);
    setSecond(two);
    setState({ text: one, target: two });
  };
  const [verdict, ...figures] = value.figures;
  return html`<section><h2>The verdict</h2><${Figure} component=${verdict} /></section>
    ${figures.map((/** @type {any} */ one) => html`<section><${Figure} component=${one} /></section>`)}
    <p class="tools">${value.rows.map((/** @type {string[]} */ [row, name]) => html`<button type="button" onClick=${() => go("read", { run: name, text, target: second })}>Read with ${row}</button>`)}</p>
    ${value.scores && html`<section><h2>One text under all rows</h2>
      <${Field} label=${value.paired ? "Source" : "Text"}><textarea rows="2" value=${text} onInput=${(/** @type {any} */ e) => change(e.target.value, second)}></textarea></${Field}>
      ${value.paired && html`<${Field} label="Translation"><textarea rows="2" value=${second} onInput=${(/** @type {any} */ e) => change(text, e.target.value)}></textarea></${Field}>`}
      <${Failure} error=${strips.error} />
      <div class=${strips.busy ? "busy" : ""}>${strips.value?.figures.map((/** @type {any} */ one) => html`<${Figure} component=${one} />`)}</div></section>`}`;
}

/** Two models, or one on two texts. @param {{run: string, state: any, setState: (patch: any) => void, go: (screen: string, state: any) => void}} props */
function Pair({ run, state, setState, go }) {
  const other = state.other || run;
  const left = useLatest("read", "open", { run });
  const right = useLatest("read", "open", { run: other });
  const [texts, setTexts] = useState({ text: state.text ?? "", second: state.target ?? "", other_text: state.other_text ?? "", other_second: state.other_target ?? "" });
  useEffect(() => { // the first text is the run's example
    const about = left.value;
    if (about?.reads && !texts.text) setTexts({ ...texts, text: about.text, second: about.second });
  }, [left.value]);
  const change = (/** @type {any} */ patch) => {
    setTexts({ ...texts, ...patch });
    const { second, other_second, ...rest } = patch; // the address calls the second text "target"
    setState({ ...rest, ...(second === undefined ? {} : { target: second }), ...(other_second === undefined ? {} : { other_target: other_second }) });
  };
  const given = [
    { run, text: texts.text, second: texts.second },
    { run: other, text: texts.other_text || texts.text, second: texts.other_second || texts.second },
  ];
  const ready = left.value?.reads && right.value?.reads && texts.text;
  const gap = useLatest("compare", "difference", ready ? { ...given[0], other, other_text: given[1].text, other_second: given[1].second } : null, { delay: 200 });
  const field = (/** @type {string} */ label, /** @type {keyof typeof texts} */ name, /** @type {string} */ empty) => html`<${Field} label=${label}>
    <textarea rows="2" value=${texts[name]} placeholder=${empty} onInput=${(/** @type {any} */ e) => change({ [name]: e.target.value })}></textarea></${Field}>`;
  return html`<${Failure} error=${left.error ?? right.error ?? gap.error} />
    <div class="sides">${[left.value, right.value].map((about, i) => html`<section aria-label=${i ? "right" : "left"}><h2>${given[i].run}</h2>
      ${about?.reads ? html`${field(i ? "Text (empty: that of the left)" : "Text", i ? "other_text" : "text", i ? texts.text : "")}
        ${about.reads.length > 1 && field(capital(about.reads[1]), i ? "other_second" : "second", i ? texts.second : "")}
        <${Side} given=${texts.text ? given[i] : null} />
        <button type="button" onClick=${() => go("read", { run: given[i].run, text: given[i].text, target: given[i].second })}>Read it closely</button>`
      : about ? html`<p class="note">This run reads no texts token by token; the screen Read shows its items.</p>` : null}</section>`)}</div>
    ${ready && gap.value && html`<section><h2>The difference</h2>${gap.value.note && html`<p>${gap.value.note}</p>`}
      <div class=${gap.busy ? "busy" : ""}>${gap.value.figures.map((/** @type {any} */ one) => html`<${Figure} component=${one} />`)}</div></section>`}`;
}

const capital = (/** @type {string} */ text) => text[0].toUpperCase() + text.slice(1);

/** @param {{given: any}} props */
function Side({ given }) {
  const { value, error, busy } = useLatest("compare", "side", given, { delay: 150 });
  return html`<${Failure} error=${error} /><div class=${busy ? "busy" : ""}>${value?.figures.map((/** @type {any} */ one) => html`<${Figure} component=${one} />`)}
    ${value?.notes.map((/** @type {string} */ note) => html`<p class="hint">${note}</p>`)}</div>`;
}
