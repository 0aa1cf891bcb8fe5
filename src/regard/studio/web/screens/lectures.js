// @ts-check
import { call, useLatest } from "../api.js";
import { Command, Failure, Field, Job, Table } from "../components.js";
import { html, useState } from "../vendor/preact.js";

const address = (/** @type {string} */ page) => `/pages/${page.split("/").map(encodeURIComponent).join("/")}`;

/** @param {Record<string, any>} props */
export default function Lectures({ deck = "", heading = "", words = "", setState }) {
  const [again, setAgain] = useState(0);
  const [failure, setFailure] = useState(/** @type {Error | null} */ (null));
  const experiments = useLatest("lectures", "experiments", {}, { again });
  const jobs = useLatest("train", "jobs", { screens: ["lectures"] }, { again });
  const decks = useLatest("lectures", "decks", {});
  const start = (/** @type {string} */ action, /** @type {object} */ args) => {
    setFailure(null);
    call("lectures", action, args).then((job) => setAgain(again + job.number + 1), setFailure);
  };
  const columns = [
    { name: "name", title: "experiment" },
    { name: "question", title: "question", long: true },
    { name: "lecture", title: "deck and heading", long: true },
    { name: "page", title: "page", show: (/** @type {any} */ row) => html`<div class="tools"><button type="button" aria-label=${`Run --quick: ${row.name}`} onClick=${() => start("run", { name: row.name })}>Run --quick</button>
      ${row.page && html`<a class="button" href=${address(row.page)} target="_blank" rel="noopener" aria-label=${`Open its page: ${row.name}`}>Open its page</a>`}</div>` },
  ];
  const found = (decks.value?.decks ?? []).flatMap((/** @type {any} */ one) => one.headings
    .filter((/** @type {string} */ title) => (words ? title.toLowerCase().includes(words.toLowerCase()) : one.number === deck))
    .map((/** @type {string} */ title) => ({ deck: one.number, title })));
  return html`<${Failure} error=${failure} />
    ${(jobs.value?.jobs ?? []).map((/** @type {any} */ job) => html`<section key=${job.number}><${Job} number=${job.number} onEnd=${() => setAgain(again + 1)} /></section>`)}
    <section><h2>Lab</h2><p class="note">The claims of the lectures as experiments. The quick form takes seconds and may be too small to tell.</p>
      <${Failure} error=${experiments.error} />
      ${experiments.value && html`<${Table} columns=${columns} rows=${experiments.value.experiments} label="Experiments" />`}</section>
    <section><h2>Lectures</h2><p class="note">What each heading means here: its idea, commands to type, and what to look at.</p><${Failure} error=${decks.error} />
      <div class="tools"><${Field} label="Lecture"><select value=${deck} onChange=${(/** @type {any} */ event) => setState({ deck: event.target.value, heading: "", words: "" })}><option value="">choose</option>
          ${(decks.value?.decks ?? []).map((/** @type {any} */ one) => html`<option value=${one.number}>${one.number} · ${one.title}</option>`)}</select></${Field}>
        <${Field} label="or a word of its headings"><input type="search" value=${words} onInput=${(/** @type {any} */ event) => setState({ words: event.target.value, heading: "" })} /></${Field}></div>
      ${words && !found.length && html`<p>No heading has “${words}”.</p>`}
      <ul class="headings">${found.map((/** @type {any} */ one) => html`<li key=${one.deck + one.title}><button type="button" class="link" aria-pressed=${one.deck === deck && one.title === heading} onClick=${() => setState({ deck: one.deck, heading: one.title })}>${words && `${one.deck} · `}${one.title}</button></li>`)}</ul>
      ${deck && heading && html`<${Entry} deck=${deck} heading=${heading} onRun=${() => start("type_commands", { deck, heading })} />`}</section>`;
}

/** @param {{deck: string, heading: string, onRun: () => void}} props */
function Entry({ deck, heading, onRun }) {
  const { value, error } = useLatest("lectures", "heading", { deck, heading });
  if (!value) return html`<${Failure} error=${error} />`;
  return html`<section class="card" aria-label=${value.heading}><h2>${value.heading}</h2>${value.idea && html`<p>${value.idea}</p>`}
    ${value.correction && html`<p class="notice">Correction: ${value.correction}</p>`}${value.reason && html`<p>No command: ${value.reason}</p>`}
    ${value.commands.map((/** @type {string} */ command) => html`<${Command} command=${command} />`)}
    ${value.commands.length > 0 && html`<p class="tools"><button type="button" onClick=${onRun}>Run them here</button></p>`}
    ${value.shows && html`<p>Look at ${value.shows}</p>`}${value.class && html`<p class="hint">${value.class} · ${value.file}</p>`}${value.left_out && html`<p class="hint">Left out: ${value.left_out}</p>`}</section>`;
}
