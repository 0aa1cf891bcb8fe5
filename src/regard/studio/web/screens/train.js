// @ts-check
import { call, upload, useLatest } from "../api.js";
import { Command, Failure, Field, Job } from "../components.js";
import { given, lines, Settings } from "../settings.js";
import { html, useId, useState } from "../vendor/preact.js";
import { Curves } from "./runs.js";

/** @param {Record<string, any>} props */
export default function Train({ run, files = "", input = "", target = "", task = "", model = "", valid = "", test = "", pretrain = "", minutes = "", out = "", strict = "", film = "", settings = "", setState, go }) {
  const [jobs, setJobs] = useState(0); // asked anew when one was started
  const [plan, setPlan] = useState(0);
  const [opened] = useState(!!(valid || test || pretrain || strict || film)); // at first: closing it is left to the user
  const [failure, setFailure] = useState(/** @type {Error | null} */ (null));
  const chosen = lines(files);
  const order = {
    files: chosen, input, target, task, model, valid: lines(valid), test: lines(test), pretrain,
    minutes: Number(minutes) || 0, out, strict: !!strict, film: !!film, settings: given(settings),
  };
  const { value: choices } = useLatest("train", "choices", {}, { again: jobs });
  const look = useLatest("train", "look", chosen.length ? { files: chosen, input, target, task } : null, { delay: 250 });
  const command = useLatest("train", "command", chosen.length ? { order } : null, { delay: 250, again: jobs });
  const running = useLatest("train", "jobs", { screens: ["train"] }, { again: jobs });
  const runs = useLatest("studio", "runs", run ? {} : null, { again: jobs });
  const unfinished = (runs.value?.runs ?? []).some((/** @type {any} */ one) => one.name === run && one.state === "not finished");
  const columns = look.value?.columns ?? [];
  const set = (/** @type {string} */ key) => (/** @type {any} */ event) => setState({ [key]: event.target.value });
  const attempt = (/** @type {string} */ action, /** @type {object} */ args, /** @type {(job: any) => void} */ then) => {
    setFailure(null);
    call("train", action, args).then(then, setFailure);
  };
  const started = (/** @type {any} */ job) => {
    setJobs(job.number);
    setState({ run: "" });
  };
  const tick = (/** @type {string} */ key, /** @type {string} */ value, /** @type {string} */ hint) => html`<label class="check"><input type="checkbox" checked=${!!value} onChange=${(/** @type {any} */ event) => setState({ [key]: event.target.checked ? "yes" : "" })} /> --${key}: ${hint}</label>`;
  const listed = choices?.files ?? [];
  return html`<${Drop} files=${chosen} onFiles=${(/** @type {string[]} */ paths) => setState({ files: [...chosen, ...paths].join("\n"), input: "", target: "" })} />
    <${Files} label="Files, one a line" hint="of the folder in which the studio was started" value=${files} names=${listed} onChange=${(/** @type {string} */ text) => setState({ files: text })} onAdd=${() => setState({ input: "", target: "" })} />
    <${Failure} error=${look.error} />
    ${look.value?.question && html`<${Question} question=${look.value.question} columns=${columns} setState=${setState} />`}
    ${look.value?.lines.map((/** @type {string} */ line) => html`<p class="note">${line}</p>`)}
    <div class="tools">
      ${columns.length > 0 && html`<${Field} label="--input"><select value=${input} onChange=${set("input")}><option value="">regard chooses</option>
        ${columns.map((/** @type {any} */ one) => html`<option value=${one.name}>${one.name} (${one.type})</option>`)}</select></${Field}>`}
      <${Suggested} label="--target" hint=${columns.length ? "a column, or several: y1,y2 or y*" : "a column, or a file of labels"} value=${target} onInput=${set("target")}
        options=${columns.filter((/** @type {any} */ one) => one.is_target && one.name !== input).map((/** @type {any} */ one) => [one.name, one.words])} />
      <${Field} label="--task"><select value=${task} onChange=${set("task")}><option value="">inferred from the data</option>${(choices?.tasks ?? []).map((/** @type {any} */ one) => html`<option value=${one.name}>${one.name}: ${one.purpose}</option>`)}</select></${Field}>
      <${Field} label="--model"><select value=${model} onChange=${set("model")}><option value="">regard chooses</option>${(choices?.models[task] ?? []).map((/** @type {string} */ name) => html`<option>${name}</option>`)}</select></${Field}>
      <${Field} label="--minutes"><input type="number" min="0" step="any" value=${minutes} placeholder="regard chooses" onInput=${set("minutes")} /></${Field}>
      <${Field} label="--out" hint=${command.value ? `the run is ${command.value.run}` : ""}><input value=${out} placeholder="regard chooses" onInput=${set("out")} /></${Field}>
    </div>
    <details class="held-out" open=${opened}><summary>Held-out files, pre-training</summary>
      <div class="columns"><${Files} label="--valid, one a line" hint="otherwise a part of the files is held out" value=${valid} names=${listed} onChange=${(/** @type {string} */ text) => setState({ valid: text })} />
        <${Files} label="--test, one a line" hint="otherwise a part of the files is held out" value=${test} names=${listed} onChange=${(/** @type {string} */ text) => setState({ test: text })} /></div>
      <div class="tools"><${Suggested} label="--pretrain" hint="a file whose masked tokens are filled in first, or a run that has done so" value=${pretrain} none="nothing" onInput=${set("pretrain")} options=${[...(choices?.runs ?? []), ...listed].map((name) => [name, name])} /></div>
      ${tick("strict", strict, "stop at damaged or overlong records")} ${tick("film", film, "record what the model makes of 64 records at each validation")}</details>
    <${Settings} settings=${settings} task=${task} model=${model} modalities=${look.value?.modalities ?? []} setState=${setState} />
    ${chosen.length > 0 && html`<${Failure} error=${command.error} />${command.value && !command.error && html`<${Command} command=${command.value.command} />
      <div class="tools after"><button type="button" disabled=${command.busy} onClick=${() => attempt("plan", { order }, (job) => setPlan(job.number))}>Plan it</button>
        <button type="button" class="main" disabled=${command.busy} onClick=${() => attempt("start", { order }, started)}>Train</button></div>`}`}
    <${Failure} error=${failure} />
    ${plan > 0 && html`<section><h2>The plan</h2><${Job} key=${plan} number=${plan} /></section>`}
    ${run && unfinished && html`<section><h2>${run}</h2><div class="tools after"><button type="button" class="main" onClick=${() => attempt("resume", { run }, started)}>Resume training</button></div></section>`}
    ${(running.value?.jobs ?? []).map((/** @type {any} */ job) => html`<${Training} key=${job.number} job=${job} go=${go} onResume=${() => attempt("resume", { run: job.run }, started)} />`)}`;
}

/** Names of files, one a line; those that lie about can be added.
 * @param {{label: string, hint: string, value: string, names: string[], onChange: (text: string) => void, onAdd?: () => void}} props */
function Files({ label, hint, value, names, onChange, onAdd }) {
  const count = lines(value).length;
  const add = (/** @type {any} */ event) => {
    onChange([...lines(value), event.target.value].join("\n"));
    onAdd?.();
  };
  return html`<div class="tools"><${Field} label=${label} hint=${hint}><textarea rows=${Math.max(2, count + 1)} cols="36" value=${value} onInput=${(/** @type {any} */ event) => onChange(event.target.value)}></textarea></${Field}>
    <${Field} label="or add one that lies there"><select value="" onChange=${add}><option value="">choose</option>${names.map((name) => html`<option>${name}</option>`)}</select></${Field}></div>`;
}

/** A text that may be one of those suggested. @param {{label: string, hint: string, value: string, options: string[][], onInput: (event: any) => void, none?: string}} props */
function Suggested({ label, hint, value, options, onInput, none = "regard chooses" }) {
  const id = useId();
  return html`<${Field} label=${label} hint=${hint}><input list=${id} value=${value} placeholder=${none} spellcheck="false" onInput=${onInput} /></${Field}>
    <datalist id=${id}>${options.map(([name, words]) => html`<option value=${name}>${words}</option>`)}</datalist>`;
}

/** Where files are dropped. @param {{files: string[], onFiles: (paths: string[]) => void}} props */
function Drop({ files, onFiles }) {
  const [over, setOver] = useState(false);
  const [busy, setBusy] = useState("");
  const [failure, setFailure] = useState(/** @type {Error | null} */ (null));
  const take = async (/** @type {FileList | null} */ list) => {
    setFailure(null);
    try {
      const paths = [];
      for (const file of list ?? []) {
        setBusy(file.name);
        paths.push(await upload(file));
      }
      onFiles(paths);
    } catch (error) {
      setFailure(/** @type {Error} */ (error));
    }
    setBusy("");
  };
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer?.files ?? null);
  };
  const drag = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    setOver(true);
  };
  return html`<div class=${over ? "drop over" : "drop"} onDragOver=${drag} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <label>Drop a file here, or choose one: <input type="file" multiple onChange=${(/** @type {any} */ event) => take(event.target.files)} /></label>
    <small role="status">${busy ? `copying ${busy} …` : "It is copied among the runs, into uploads; nothing leaves this machine."}</small>
    <${Failure} error=${failure} /></div>`;
}

/** Which columns are read and predicted? @param {{question: any, columns: any[], setState: (patch: object) => void}} props */
export function Question({ question, columns, setState }) {
  const candidates = columns.filter((one) => one.is_input);
  const inputs = candidates.length ? candidates : columns;
  const [input, setInput] = useState([...inputs].sort((a, b) => b.words.length - a.words.length)[0]?.name ?? ""); // the longest texts
  const targets = columns.filter((one) => one.is_target && one.name !== input);
  return html`<section class="question" aria-label="a question"><p><strong>${question.text}</strong></p>
    ${inputs.length > 1 && html`<fieldset><legend>Read</legend>${inputs.map((one) => html`<label><input type="radio" name="input" checked=${one.name === input} onChange=${() => setInput(one.name)} /> ${one.words}</label>`)}</fieldset>`}
    <fieldset><legend>Predict</legend><div class="tools">${(targets.length ? targets : columns.filter((one) => one.name !== input)).map((one) => html`<button type="button" onClick=${() => setState({ input, target: one.name })}>${one.words}</button>`)}
      <button type="button" onClick=${() => setState({ input, target: "", task: "next" })}>nothing: learn the texts of ${input} alone</button></div></fieldset>
    <details><summary>What regard says</summary><pre>${question.details.join("\n")}</pre></details></section>`;
}

/** A run in training. @param {{job: any, go: Function, onResume: () => void}} props */
function Training({ job, go, onResume }) {
  const [state, setState] = useState(job.state);
  const running = state === "running" || state === "stopping";
  const { value } = useLatest("runs", "table", {}, { every: running ? 2000 : 0, again: state });
  const entry = value?.runs.find((/** @type {any} */ one) => one.name === job.run);
  return html`<section><h2>${job.run}</h2>
    <${Job} number=${job.number} onEnd=${(/** @type {any} */ ended) => setState(ended.state)}>
      ${!running && entry?.state === "not finished" && html`<button type="button" onClick=${onResume}>Resume</button>`}
      ${!running && entry?.state === "done" && html`<button type="button" onClick=${() => go("runs", { run: job.run })}>Its card</button> <button type="button" onClick=${() => go("read", { run: job.run })}>Read with it</button> <button type="button" onClick=${() => go("errors", { run: job.run })}>Its errors</button>`}
    </${Job}>
    ${entry && html`<${Curves} runs=${[job.run]} curve="training" live=${running} />`}</section>`;
}
