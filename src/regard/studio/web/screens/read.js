// @ts-check
// A text as a model reads it: surprise, what was expected, where it looked, and what happens when its parts are off.
import { call, useLatest } from "../api.js";
import { Failure, Field, Figure, RunPicker, Slider } from "../components.js";
import { Attention } from "../reading/attention.js";
import { canHighlight, coloursOf, highlightOf, inkOn, ramp, rgb, useSheet, useStyles } from "../reading/colours.js";
import { Editor } from "../reading/editor.js";
import { Excitations } from "../reading/excitations.js";
import { Film } from "../reading/film.js";
import { useTokens } from "../reading/tokens.js";
import { WhatIf } from "../reading/what_if.js";
import { amount, percent, surprise, visible } from "../reading/words.js";
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";

const ADDRESS = 1500; // characters of a text that the address holds
const LEAST = 6; // bits at the end of the colour scale

/** @param {{run: string, state: Record<string, string>, setRun: (run: string) => void, setState: (patch: any) => void, go: (screen: string, state: any) => void}} props */
export default function Read({ run, state, setRun, setState, go }) {
  useStyles();
  useSheet();
  const opened = useLatest("read", "open", run ? { run } : null);
  const about = opened.value?.run === run ? opened.value : null;
  return html`<div class="tools"><${RunPicker} run=${run} setRun=${(/** @type {string} */ name) => go("read", { run: name, text: state.text ?? "", target: state.target ?? "" })} />
      ${about && about.records > 0 && html`<${RecordPicker} about=${about} state=${state} setState=${setState} />`}
      ${about?.reads && html`<button type="button" onClick=${() => go("step", { run, text: state.text ?? "", target: state.target ?? "", position: state.at ? Number(state.at) + about.step : "" })}>Step through</button>
        <button type="button" onClick=${() => go("compare", { run, text: state.text ?? "", target: state.target ?? "" })}>Compare</button>`}</div>
    <${Failure} error=${opened.error} />
    ${!run && html`<p class="note">Choose a run to read a text with.</p>`}
    ${about && (about.reads ? html`<${Reading} key=${run} run=${run} about=${about} state=${state} setState=${setState} />` : html`<${Item} run=${run} about=${about} state=${state} setState=${setState} />`)}`;
}

/** @param {{about: any, state: any, setState: (patch: any) => void}} props */
function RecordPicker({ about, state, setState }) {
  const number = state.record === undefined || state.record === "" ? null : Number(state.record);
  const show = (/** @type {number} */ to) => setState({ record: Math.max(0, Math.min(about.records - 1, to)), text: "", target: "", at: "" });
  return html`<div class="field"><span id="records">Held-out record of ${about.records.toLocaleString("en")}, ${about.split} split</span><div class="together" role="group" aria-labelledby="records">
    <button type="button" aria-label="previous record" onClick=${() => show((number ?? 1) - 1)}>‹</button>
    <input type="number" min="1" max=${about.records} aria-label="record number" value=${number === null ? "" : number + 1} onChange=${(/** @type {any} */ e) => show(Number(e.target.value) - 1)} />
    <button type="button" aria-label="next record" onClick=${() => show((number ?? -1) + 1)}>›</button></div></div>`;
}

/** @param {{run: string, about: any, state: any, setState: (patch: any) => void}} props */
function Reading({ run, about, state, setState }) {
  const paired = about.reads.length > 1;
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [second, setSecond] = useState("");
  const [failure, setFailure] = useState(/** @type {Error | null} */ (null));
  const [visiblePages, setVisible] = useState([0]);
  const [caret, setCaret] = useState(0);
  const [goTo, setGoTo] = useState(/** @type {number | null} */ (null));
  const [off, setOff] = useState(/** @type {string[]} */ ([]));
  const [pinned, setPinned] = useState(/** @type {number | null} */ (null));
  const wanted = useRef(/** @type {string | null} */ (state.at ?? "")); // the token to begin with; "": the most surprising

  useEffect(() => { // what the address names: a text, a record, or the run's example
    if (state.text) {
      if (state.text !== text) setText(state.text);
      if ((state.target ?? "") !== second) setSecond(state.target ?? "");
    } else if (state.record) {
      const control = new AbortController();
      call("read", "record", { run, number: Number(state.record) }, { signal: control.signal }).then(
        (record) => { setText(record.text); setSecond(record.second); setFailure(null); wanted.current = state.at ?? ""; },
        (error) => control.signal.aborted || setFailure(error));
      return () => control.abort();
    } else if (text === null) {
      setText(about.text);
      setSecond(about.second);
    }
  }, [state.text, state.target, state.record]);

  const change = (/** @type {string} */ one, /** @type {string} */ two) => {
    setText(one);
    setSecond(two);
    setPinned(null);
    if (one.length + two.length <= ADDRESS) setState({ text: one, target: two, record: "" });
    else if (state.text || state.record) setState({ text: "", target: "", record: "" });
  };

  const ready = text !== null;
  const shown = (paired ? second : text) ?? "";
  const asked = { run, text: text ?? "", second, off };
  const { pages, tokens, version, error, busy, current } = useTokens({ ...asked, shown, visible: visiblePages, ready, caret });
  const whole = useLatest("read", "summary", ready ? asked : null, { delay: shown.length > 4000 ? 400 : 0 });
  const at = tokens.find(caret);
  const token = at === null ? null : tokens.at(at);
  const position = pinned ?? at;
  useEffect(() => { // the position that the address names, once its token is known
    if (wanted.current === null || tokens.count < 0) return;
    const there = wanted.current === "" ? tokens.worst : tokens.at(Number(wanted.current));
    wanted.current = null;
    if (there) setCaret(there.start);
    if (there && state.at) setGoTo(there.start);
  }, [version]);
  useEffect(() => { if (at !== null && ready && String(at) !== state.at && document.activeElement?.closest(".editor")) setState({ at }); }, [at]);

  const { what, value, most, unit } = colouring(tokens, whole.value);
  const insert = (/** @type {string} */ piece) => {
    const next = shown.slice(0, caret) + (caret === 0 ? piece.replace(/^ /, "") : piece) + shown.slice(caret);
    paired ? change(text ?? "", next) : change(next, second);
    setCaret(caret + piece.length);
    setGoTo(caret + piece.length);
  };
  const pick = (/** @type {number} */ i, /** @type {boolean} */ source) => {
    const there = source ? null : tokens.at(Math.max(0, i));
    if (there) setGoTo(there.start);
  };
  const openRecord = (/** @type {string} */ record, /** @type {number} */ there) => {
    if (record === shown) pick(there, false);
    else {
      change(record, "");
      wanted.current = String(there);
      setState({ at: there });
    }
    document.querySelector(".reading-text")?.scrollIntoView({ block: "nearest" });
  };
  useEffect(() => setGoTo(null), [goTo]);
  const end = tokens.count > 0 ? tokens.at(tokens.count - 1) : null;
  const marker = end && end.start === end.end ? end : null;
  const positionArgs = ready && current && position !== null ? { ...asked, at: position } : null; // once the tokens are known
  return html`<${Failure} error=${failure ?? error ?? whole.error} />
    ${paired && html`<${Field} label=${capital(about.reads[0])}><textarea rows="2" value=${text ?? ""} onInput=${(/** @type {any} */ e) => change(e.target.value, second)}></textarea></${Field}>`}
    <section class=${`reading-text ${busy ? "reads" : ""}`} aria-label=${capital(about.reads[about.reads.length - 1])}>
      <${Editor} pages=${pages} tokens=${tokens} version=${version} what=${what} value=${value} most=${most} label=${capital(about.reads[about.reads.length - 1])}
        chosen=${token} onText=${(/** @type {string} */ next, /** @type {number} */ place) => { paired ? change(text ?? "", next) : change(next, second); setCaret(place); }}
        onCaret=${setCaret} setVisible=${setVisible} goTo=${goTo} />
      ${marker && pages.length === 1 && html`<button type="button" class=${`marker ${at === marker.i ? "here" : ""}`} onClick=${() => setGoTo(shown.length)} title=${surprise(marker.bits)} style=${Number.isNaN(value(tokens.parts.get(pages[0].start), marker.i)) ? {} : paper(what, value(tokens.parts.get(pages[0].start), marker.i), most)}>${marker.name} ${Number.isNaN(marker.bits) ? "" : `${amount(marker.bits)} bits`}</button>`}
      <p class="readout" role="status" data-at=${at ?? ""} data-bits=${token ? token.bits : ""} data-rank=${token ? token.rank : ""} data-added=${(what === "adds" && token && whole.value.added.values[token.i]) ?? ""}>${describe(token, at, tokens, what, shown, whole.value, about)}</p>
      ${what && html`<div class="legend">${what === "adds" ? amount(-most) : 0} <span class="bar" style=${{ background: `linear-gradient(90deg, ${ramp(what === "adds" ? "diverging" : "warm").map(rgb).join(", ")})` }}></span> ${amount(most)} ${unit}
        ${busy && html`<span> · reading …</span>`}</div>`}
      ${!canHighlight && html`<p class="hint">This browser cannot colour a text that is typed into; the numbers are below it.</p>`}
      ${(whole.value?.notes ?? []).map((/** @type {string} */ note) => html`<p class="hint">${note}</p>`)}
    </section>
    ${(whole.value?.figures ?? []).map((/** @type {any} */ figure) => html`<${Figure} component=${figure} />`)}
    <div class="reading-panels">
      ${about.expects && html`<section aria-label="Expected here"><h2>${about.causal ? `Expected here${before(tokens, at, shown)}` : `Expected in place of “${visible(token?.name ?? "")}”`}</h2><${Expected} asked=${positionArgs} token=${token} insert=${insert} state=${state} setState=${setState} /></section>`}
      ${whole.value?.classes && token && html`<section aria-label="Classes here"><h2>Classes here</h2><${Classes} classes=${whole.value.classes} at=${at} /></section>`}
      <section aria-label="Where it looked"><h2>Where it looked</h2><${Attention} asked=${positionArgs} layers=${about.layers} averages=${about.averages} state=${state} setState=${setState} onPick=${pick} pinned=${pinned} setPinned=${setPinned} /></section>
      <section aria-label="What if"><h2>What if</h2><${WhatIf} asked=${positionArgs} token=${token} layers=${about.layers} off=${off} setOff=${setOff} about=${about} /></section>
    </div>
    <${Excitations} run=${run} openRecord=${openRecord} />
    ${about.film && html`<${Film} run=${run} layers=${about.layers} setState=${setState} />`}`;
}

/** The colours of a token. @param {string} what @param {number} value @param {number} most */
function paper(what, value, most) {
  const colour = coloursOf(highlightOf(what, value, most));
  return { background: rgb(colour), color: inkOn(colour) };
}

const capital = (/** @type {string} */ text) => text[0].toUpperCase() + text.slice(1);

/** What colours the tokens: surprise, the most probable class, or what each adds. @param {any} tokens @param {any} whole
 * @returns {{what: string, value: (part: any, k: number) => number, most: number, unit: string}} */
function colouring(tokens, whole) {
  const all = (/** @type {Float32Array} */ values) => values.reduce((a, b) => Math.max(a, Math.abs(b)), 0) || 1;
  if (whole?.classes) {
    const n = whole.classes.names.length;
    return { what: "classes", most: 1, unit: "", value: (part, k) => best(whole.classes.probabilities, part.first + k, n) };
  }
  if (whole?.added) return { what: "adds", most: all(whole.added.values), unit: whole.added.name, value: (part, k) => whole.added.values[part.first + k] ?? NaN };
  if ([...tokens.parts.values()].some((part) => part.bits)) return { what: "bits", most: Math.max(LEAST, tokens.most), unit: "bits of surprise", value: (part, k) => part.bits?.[k] ?? NaN };
  return { what: "", most: 1, unit: "", value: () => NaN };
}

/** @param {Float32Array} table @param {number} row @param {number} n */
function best(table, row, n) {
  if (row * n >= table.length) return NaN;
  let most = 0;
  for (let j = 1; j < n; j++) if (table[row * n + j] > table[row * n + most]) most = j;
  return most;
}

/** @param {any} token @param {number | null} at @param {any} tokens @param {string} what @param {string} text @param {any} whole @param {any} about */
function describe(token, at, tokens, what, text, whole, about) {
  if (at === null) return "Move with the arrow keys, or click a token.";
  if (!token) return at === tokens.count && at > 0 ? "What follows the text." : "";
  const written = text.slice(token.start, token.end);
  const read = visible(token.name); // as a word that is not in the vocabulary, or in small letters
  const name = `${written.trim() && written.trim() !== token.name.trim() ? `“${visible(written)}”, read as ${read}` : read} (${token.i + 1}): `;
  if (what === "classes") return `${name}${whole.classes.names[best(whole.classes.probabilities, token.i, whole.classes.names.length)] ?? "not read"}`;
  if (what === "adds") return `${name}${amount(whole.added.values[token.i] ?? NaN)}, ${whole.added.name}`;
  return `${name}${surprise(token.bits)}${token.rank ? `, number ${token.rank.toLocaleString("en")} of ${about.size.toLocaleString("en")}` : ""}`;
}

/** @param {any} tokens @param {number | null} at @param {string} shown */
function before(tokens, at, shown) {
  const token = at === null ? null : tokens.at(at);
  const text = shown.slice(0, token ? token.start : shown.length);
  if (!text) return " at the beginning";
  const end = Array.from(text).slice(-16).join("");
  return ` after “${end.length < text.length ? "…" : ""}${end.replaceAll("\n", "↵")}”`;
}

/** @param {{asked: any, token: any, insert: (piece: string) => void, state: any, setState: (patch: any) => void}} props */
function Expected({ asked, token, insert, state, setState }) {
  const [cut, setCut] = useState({ temperature: 1, top_k: 0, top_p: 1 });
  const { value, error, busy } = useLatest("read", "expect", asked && { ...asked, ...cut });
  const size = value?.size ?? 0;
  const rows = useMemo(() => value?.tokens?.map((/** @type {string} */ name, /** @type {number} */ i) => ({ name, i, p: value.probabilities[i], after: value.after[i], piece: value.inserts[i], id: value.ids[i] })) ?? [], [value]);
  const top = rows.length ? Math.max(...rows.map((/** @type {any} */ row) => Math.max(row.p, row.after))) : 1;
  const changed = cut.temperature !== 1 || cut.top_k > 0 || cut.top_p < 1;
  const here = token && rows.some((/** @type {any} */ row) => row.name === token.name);
  const levels = Math.max(1, Math.ceil(Math.log2(Math.max(2, size))));
  return html`<div class="cuts">
      <${Slider} label="Temperature" value=${cut.temperature} min=${0.1} max=${2.5} step=${0.05} show=${(/** @type {number} */ v) => v.toFixed(2)} onChange=${(/** @type {number} */ temperature) => setCut({ ...cut, temperature })} />
      <${Slider} label="Top-K" value=${cut.top_k ? Math.log2(cut.top_k) : levels} min=${0} max=${levels} step=${0.5} show=${() => (cut.top_k ? String(cut.top_k) : "all")} onChange=${(/** @type {number} */ v) => setCut({ ...cut, top_k: v >= levels ? 0 : Math.max(1, Math.round(2 ** v)) })} />
      <${Slider} label="Top-P" value=${cut.top_p} min=${0.05} max=${1} step=${0.01} show=${(/** @type {number} */ v) => (v >= 1 ? "all" : v.toFixed(2))} onChange=${(/** @type {number} */ top_p) => setCut({ ...cut, top_p })} />
    </div><${Failure} error=${error} />
    ${value && !value.tokens && html`<p class="note">Nothing comes before the first token: it is not predicted.</p>`}
    <ul class=${`expected-list ${busy ? "busy" : ""}`} data-of=${value?.at}>${rows.map((/** @type {any} */ row) => html`<li key=${row.id} class=${changed && !row.after ? "cut" : ""}>
      <button type="button" class="name" disabled=${!row.piece} title="insert it here" onClick=${() => insert(row.piece)}>${visible(row.name)}</button>
      <span class="track"><span class="fill" style=${{ width: `${(100 * (changed ? row.after : row.p)) / top}%` }}></span></span>
      <span class="number" data-token=${row.name} data-p=${row.p} data-after=${row.after}>${changed ? (row.after ? percent(row.after) : "cut") : percent(row.p)}${token && row.name === token.name ? " ← the text" : ""}</span></li>`)}
      ${token && rows.length > 0 && !here && !Number.isNaN(token.bits) && html`<li><span class="name">${visible(token.name)}</span><span class="track"></span><span class="number">${percent(2 ** -token.bits)} ← the text</span></li>`}</ul>
    ${value?.tokens && html`<p class="hint">${changed ? `${value.remaining.toLocaleString("en")} of ${size.toLocaleString("en")} tokens are left. ` : ""}A click inserts the token before the position.</p>`}`;
}

/** @param {{classes: any, at: number | null}} props */
function Classes({ classes, at }) {
  const n = classes.names.length;
  const rows = classes.names.map((/** @type {string} */ name, /** @type {number} */ j) => [name, classes.probabilities[(at ?? 0) * n + j]]).filter((/** @type {any} */ row) => row[1] !== undefined);
  return html`<ul class="expected-list">${rows.map((/** @type {any} */ [name, p]) => html`<li><span class="name">${name}</span><span class="track"><span class="fill" style=${{ width: `${100 * p}%` }}></span></span><span class="number" data-token=${name} data-p=${p}>${percent(p)}</span></li>`)}</ul>`;
}

/** A record that is no text: the page of regard look about it. @param {{run: string, about: any, state: any, setState: (patch: any) => void}} props */
function Item({ run, about, state, setState }) {
  const { value, error, busy } = useLatest("read", "page", { run, number: Number(state.record || 0) });
  return html`<${Failure} error=${error} />${busy && html`<p class="note">Reading …</p>`}
    ${value && html`<div class=${busy ? "busy" : ""}><h2>${value.title}</h2>${value.warnings.map((/** @type {string} */ text) => html`<p class="notice">${text}</p>`)}
      ${value.sections.map((/** @type {any} */ section) => html`<section>${section.title && html`<h2>${section.title}</h2>`}${section.note && html`<p class="note">${section.note}</p>`}
        ${section.rows.map((/** @type {any[]} */ row) => html`<div class="row">${row.map((figure) => html`<${Figure} component=${figure} />`)}</div>`)}</section>`)}</div>`}
    ${about.film && html`<${Film} run=${run} layers=${[]} setState=${setState} />`}`;
}
