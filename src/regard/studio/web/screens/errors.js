// @ts-check
// Errors: the confusion matrix, whose cells open their records, slices with intervals, and plots.
import { call, useLatest } from "../api.js";
import { Failure, Field, Figure, RunPicker } from "../components.js";
import { html, useRef, useState } from "../vendor/preact.js";
// @ts-ignore: made of the components of `regard look`
import { format, inkOn, rgb, scaleOf } from "/look.js";

/** @typedef {Record<string, string>} State */

const PAGE = 25; // records
const NUMBERS = ["shortest", "longest"];
const FILTERS = ["text", "truth", "prediction", "correct", "shortest", "longest", "column", "value"];
const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** A number, or what stands for one that JSON cannot hold. @param {any} value */
const shown = (value) => (value === "inf" ? "∞" : value === "-inf" ? "−∞" : typeof value === "number" ? format(value) : "–");
const percent = (/** @type {any} */ p) => (typeof p === "number" ? `${(100 * p).toFixed(1)}%` : "–");

/** @param {any} props */
export default function Errors({ run, state, setRun, setState, go }) {
  const { value: summary, error, busy } = useLatest("errors", "summary", run ? { run } : null);
  const ready = summary?.run === run;
  const figures = ready ? summary.figures.filter((/** @type {any} */ one) => !(summary.confusion && one.kind === "confusion")) : []; // it is drawn above
  const show = (/** @type {Record<string, any>} */ filters) => { // and bring the list into view
    setState(anew(filters));
    document.getElementById("records")?.scrollIntoView({ block: "nearest" });
  };
  return html`<div class="tools"><${RunPicker} run=${run} setRun=${(/** @type {string} */ next) => go("errors", { run: next })} /></div>
    <${Failure} error=${error} />
    ${!run && html`<p>Choose a run to see which held-out records it gets wrong.</p>`}
    ${run && busy && !ready && html`<p role="status">Evaluating the held-out records…</p>`}
    ${ready && html`<p class="subtitle">${format(summary.records)}${summary.held_out > summary.records ? ` of ${format(summary.held_out)}` : ""} records of the ${summary.split} split${summary.held_out > summary.records ? ", evenly spaced" : ""}; ${summary.score} ${shown(summary.mean)} on average${summary.impossible ? `, ${format(summary.impossible)} more hold what the model finds impossible` : ""}.</p>
      <div class="columns overview"><${Confusion} confusion=${summary.confusion} state=${state} show=${show} />
        <${Slices} key=${`${run} slices`} run=${run} summary=${summary} state=${state} setState=${setState} show=${show} /></div>
      <${Records} key=${run} run=${run} summary=${summary} state=${state} setState=${setState} go=${go} />
      ${figures.length > 0 && html`<section><details><summary><h2>Plots</h2></summary><div class="columns">${figures.map((/** @type {any} */ figure, /** @type {number} */ i) => html`<${Figure} key=${i} component=${figure} />`)}</div></details></section>`}`}`;
}

/** Change filters, and begin at the first page again. @param {Record<string, any>} patch */
const anew = (patch) => ({ ...Object.fromEntries(FILTERS.map((name) => [name, ""])), first: "", ...patch });

/** @param {{confusion: any, state: State, show: (filters: Record<string, any>) => void}} props */
function Confusion({ confusion, state, show }) {
  const table = useRef(/** @type {HTMLTableElement | null} */ (null));
  const [at, setAt] = useState([0, 0]);
  if (!confusion) return null;
  const { classes, counts } = confusion;
  const scale = scaleOf("sequential", [0, 1], true);
  const totals = counts.map((/** @type {number[]} */ row) => row.reduce((a, b) => a + b, 0));
  const move = (/** @type {any} */ event) => {
    const step = ARROWS[/** @type {keyof typeof ARROWS} */ (event.key)];
    if (!step) return;
    event.preventDefault();
    const [r, c] = [at[0] + step[0], at[1] + step[1]].map((i) => Math.min(classes.length - 1, Math.max(0, i)));
    setAt([r, c]);
    /** @type {any} */ (table.current)?.querySelectorAll("button")[r * classes.length + c].focus();
  };
  const cell = (/** @type {number} */ r, /** @type {number} */ c) => {
    const colour = scale(totals[r] ? counts[r][c] / totals[r] : 0);
    const chosen = state.truth === classes[r] && state.prediction === classes[c];
    const words = `${format(counts[r][c])} records, true ${classes[r]}, predicted ${classes[c]}`;
    return html`<td><button type="button" class=${r === c ? "cell right" : "cell"} aria-label=${words} title=${words} aria-pressed=${String(chosen)} tabindex=${r === at[0] && c === at[1] ? 0 : -1}
      style=${{ background: rgb(colour), color: inkOn(colour) }} onFocus=${() => setAt([r, c])} onClick=${() => show(chosen ? {} : { truth: classes[r], prediction: classes[c] })}>${counts[r][c] || ""}</button></td>`;
  };
  return html`<section class="confusion"><h2>Confusion</h2><div class="scroll"><table ref=${table} class=${classes.some((/** @type {string} */ name) => name.length > 6) ? "matrix long" : "matrix"} style=${{ "--n": classes.length }} onKeyDown=${move}>
    <thead><tr><td></td>${classes.map((/** @type {string} */ name) => html`<th scope="col"><span>${name}</span></th>`)}</tr></thead>
    <tbody>${classes.map((/** @type {string} */ name, /** @type {number} */ r) => html`<tr><th scope="row">${name}</th>${classes.map((/** @type {string} */ _, /** @type {number} */ c) => cell(r, c))}</tr>`)}</tbody></table></div>
    <p class="hint">True classes down, predicted ones across; colour is the share of a row. Choose a cell to list its records below.${confusion.all > classes.length ? ` The ${classes.length} most frequent of ${format(confusion.all)} classes.` : ""}</p></section>`;
}

/** @param {{run: string, summary: any, state: State, setState: Function, go: Function}} props */
function Records({ run, summary, state, setState, go }) {
  const has = new Set(summary.has);
  const first = Number(state.first) || 0;
  const sort = state.sort || "loss";
  const descending = state.order !== "up";
  const filters = Object.fromEntries(FILTERS.filter((name) => state[name]).map((name) => [name, NUMBERS.includes(name) ? Number(state[name]) || 0 : state[name]]));
  const query = { ...filters, sort, descending };
  const { value, error, busy } = useLatest("errors", "records", { run, query, first, count: PAGE }, { delay: 80 });
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setState({ [name]: event.target.value, first: "" });
  const choice = (/** @type {string} */ name, /** @type {string} */ title, /** @type {string[]} */ options, any = "any") => html`<${Field} label=${title}><select value=${state[name] ?? ""} onChange=${set(name)}>
    <option value="">${any}</option>${options.map((one) => html`<option value=${one}>${one}</option>`)}</select></${Field}>`;
  const classes = summary.confusion?.classes ?? [];
  const columns = Object.keys(summary.columns);
  const save = async () => {
    const { name, text } = await call("errors", "export", { run, query });
    download(name, text);
  };
  return html`<section id="records"><h2>Records</h2><div class="tools">
      <${Field} label="Search" hint="a text, or /a pattern/"><input type="search" value=${state.text ?? ""} onInput=${set("text")} spellcheck="false" /></${Field}>
      ${has.has("correct") && choice("correct", "Prediction is", ["right", "wrong"], "right or wrong")}
      ${classes.length > 0 && choice("truth", "True label", classes)}${classes.length > 0 && choice("prediction", "Predicted", classes)}
      ${columns.length > 0 && html`<${Field} label="Column"><select value=${state.column ?? ""} onChange=${(/** @type {any} */ event) => setState({ column: event.target.value, value: summary.columns[event.target.value]?.[0] ?? "", first: "" })}><option value="">any</option>${columns.map((one) => html`<option value=${one}>${one}</option>`)}</select></${Field}>`}
      ${state.column && summary.columns[state.column] && html`<${Field} label="is"><select value=${state.value ?? ""} onChange=${set("value")}>${summary.columns[state.column].map((/** @type {string} */ one) => html`<option value=${one}>${one}</option>`)}</select></${Field}>`}
      <${Field} label="Tokens from"><input type="number" min="0" max=${summary.longest} value=${state.shortest ?? ""} onChange=${set("shortest")} /></${Field}>
      <${Field} label="to"><input type="number" min="0" max=${summary.longest} value=${state.longest ?? ""} onChange=${set("longest")} /></${Field}>
      <${Field} label="Sort by"><select value=${sort} onChange=${set("sort")}><option value="loss">${summary.loss}</option>${has.has("confidences") && html`<option value="confidence">confidence</option>`}<option value="tokens">tokens</option><option value="number">place in the split</option></select></${Field}>
      <button type="button" aria-pressed=${String(!descending)} onClick=${() => setState({ order: descending ? "up" : "", first: "" })}>${descending ? "largest first" : "smallest first"}</button>
      <button type="button" onClick=${() => setState(anew({}))}>no filters</button><button type="button" onClick=${save}>save as CSV</button></div>
    <${Failure} error=${error} />
    ${value && html`<p class="readout" role="status">${format(value.total)} of ${format(summary.records)} records${value.total > PAGE ? `, ${format(value.first + 1)} to ${format(Math.min(value.total, value.first + PAGE))}` : ""}</p>
      <div class=${busy ? "scroll busy" : "scroll"}><table class="stacks errors"><thead><tr><th scope="col">record</th>${has.has("truths") && html`<th scope="col">true</th>`}${value.rows.some((/** @type {any} */ row) => "prediction" in row) && html`<th scope="col">predicted</th>`}
        ${has.has("confidences") && html`<th scope="col" class="right">confidence</th>`}<th scope="col" class="right">${summary.loss}</th>${columns.map((name) => html`<th scope="col">${name}</th>`)}<th scope="col"></th></tr></thead>
      <tbody>${value.rows.map((/** @type {any} */ row) => html`<tr class=${row.correct === 0 ? "wrong" : ""}>
        <td data-name="">${row.picture ? html`<${Figure} component=${row.picture} />` : html`<span class="text">${row.text}</span>`}<small> no. ${format(row.number + 1)}, ${format(row.tokens)} tokens</small></td>
        ${has.has("truths") && html`<td data-name="true">${row.truth}</td>`}${"prediction" in row && html`<td data-name="predicted" class="said">${row.prediction}</td>`}
        ${has.has("confidences") && html`<td data-name="confidence" class="right">${percent(row.confidence)}</td>`}<td data-name=${summary.loss} class="right">${shown(row.loss)}</td>
        ${columns.map((name) => html`<td data-name=${name}>${row.columns[name]}</td>`)}
        <td data-name=""><button type="button" aria-label=${`read record ${row.number + 1}`} onClick=${() => go("read", summary.running ? { run, text: row.text } : { run, record: row.number })}>read</button></td></tr>`)}</tbody></table></div>
      ${value.total > PAGE && html`<div class="tools"><button type="button" disabled=${first <= 0} onClick=${() => setState({ first: Math.max(0, first - PAGE) || "" })}>earlier</button><button type="button" disabled=${first + PAGE >= value.total} onClick=${() => setState({ first: first + PAGE })}>later</button></div>`}`}</section>`;
}

/** @param {string} name @param {string} text */
export function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** The records of a slice. @param {any} one @returns {Record<string, any>} */
function filterOf(one) {
  const [from, to = from] = one.name.replaceAll(",", "").split(" to ");
  if (one.group === "true label") return { truth: one.name };
  if (one.group === "tokens") return { shortest: from, longest: to };
  const word = one.name.match(/^with “(.*)”$/);
  if (one.group === "word") return word ? { text: word[1] } : {};
  return { column: one.group, value: one.name };
}

/** @param {{run: string, summary: any, state: State, setState: Function, show: (filters: Record<string, any>) => void}} props */
function Slices({ run, summary, state, setState, show }) {
  const words = (state.words ?? "").split(",").map((word) => word.trim()).filter(Boolean).slice(0, 8);
  const { value, error } = useLatest("errors", "slices", { run, words }, { delay: 150 });
  const ends = value ? value.slices.flatMap((/** @type {any} */ one) => [one.low, one.high, one.mean]).filter((/** @type {any} */ x) => typeof x === "number") : [];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const left = (/** @type {any} */ x) => `${(100 * ((typeof x === "number" ? x : x === "inf" ? high : low) - low)) / (high - low || 1)}%`;
  return html`<section><h2>Slices</h2><p class="note">Records of one label, length, column or word, the worst first, by ${summary.score} with its 95% interval. A slice is called worse or better only where a test against all other records says so (5% for all slices together), and never with fewer than 10 records.</p>
    <div class="tools"><${Field} label="Words" hint="up to eight, commas between them"><input value=${state.words ?? ""} spellcheck="false" onInput=${(/** @type {any} */ event) => setState({ words: event.target.value })} /></${Field}></div>
    <${Failure} error=${error} />
    ${value && (value.slices.length ? html`<div class="scroll"><table class="slices"><thead><tr><th scope="col">by</th><th scope="col">slice</th><th scope="col" class="right">records</th><th scope="col">against the rest</th><th scope="col" class="right">${value.score}</th><th scope="col">95% interval</th></tr></thead>
      <tbody>${value.slices.map((/** @type {any} */ one) => html`<tr><td>${one.group}</td><td>${Object.keys(filterOf(one)).length ? html`<button type="button" onClick=${() => show(filterOf(one))}>${one.name}</button>` : one.name}</td><td class="right">${format(one.count)}</td><td class=${one.verdict}>${one.verdict || "no difference shown"}</td><td class="right">${shown(one.mean)}</td>
        <td><span class="interval" title=${`${shown(one.low)} to ${shown(one.high)}`}><i style=${{ left: left(one.low), right: `calc(100% - ${left(one.high)})` }}></i><b style=${{ left: left(one.mean) }}></b></span></td></tr>`)}</tbody></table></div>` : html`<p>There is nothing to slice these records by: name a word.</p>`)}</section>`;
}
