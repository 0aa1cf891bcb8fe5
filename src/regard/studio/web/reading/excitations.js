// @ts-check
// The records that excite a unit or a head most; the index of an activation is built by a job.
import { call, useLatest } from "../api.js";
import { Command, Failure, Field, Job } from "../components.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { visible } from "./words.js";

const AROUND = 60; // characters before and after the token that are shown

/** @param {{run: string, openRecord: (text: string, at: number) => void}} props */
export function Excitations({ run, openRecord }) {
  const [open, setOpen] = useState(false);
  return html`<section class="excitations" aria-label="Which records excite a unit"><details onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary><h2>Which records excite a unit</h2></summary>${open && html`<${Search} run=${run} openRecord=${openRecord} />`}</details></section>`;
}

/** @param {{run: string, openRecord: (text: string, at: number) => void}} props */
function Search({ run, openRecord }) {
  const { value: found, error } = useLatest("read", "activations", { run });
  const [name, setName] = useState("");
  const [unit, setUnit] = useState(0);
  const [job, setJob] = useState(/** @type {number | null} */ (null));
  const [failure, setFailure] = useState(/** @type {Error | null} */ (null));
  const [again, setAgain] = useState(0);
  const all = found?.activations ?? [];
  const chosen = all.find((/** @type {any} */ one) => one.name === name) ?? all.find((/** @type {any} */ one) => one.heads) ?? all[0];
  const asked = chosen && unit < chosen.units ? { run, activation: chosen.name, unit } : null;
  const matches = useLatest("read", "excite", asked, { again });
  const of = asked && `${asked.activation}:${asked.unit}`;
  const current = matches.value && matches.value.of === of ? matches.value : null;
  useEffect(() => setJob(null), [run, chosen?.name]);
  const search = () => {
    setFailure(null);
    call("read", "search", asked ?? {}).then((started) => setJob(started.number), setFailure);
  };
  if (!found) return html`<${Failure} error=${error} />${!error && html`<p class="note">Looking for activations …</p>`}`;
  if (!chosen) return html`<p class="note">Nothing can be searched here: ${found.note || "the model has no activations of tokens"}.</p>`;
  const choose = (/** @type {string} */ next) => {
    setName(next);
    setUnit(0);
  };
  return html`<div class="tools"><${Field} label="Layer and part"><select value=${chosen.name} onChange=${(/** @type {any} */ event) => choose(event.target.value)}>${layersOf(all).map(([layer, parts]) => html`<optgroup label=${layer}>${parts.map((part) => html`<option value=${part.name}>${layer} · ${part.what}</option>`)}</optgroup>`)}</select></${Field}>
      <${Unit} chosen=${chosen} unit=${unit} setUnit=${setUnit} />
      ${current && !current.records && job === null && html`<button type="button" class="main" onClick=${search}>Search the training data</button>`}</div>
    <${Failure} error=${failure ?? matches.error} />
    ${job !== null && !current?.records && html`<${Job} key=${job} number=${job} onEnd=${() => setAgain(again + 1)} />`}
    ${current && !current.records && job === null && html`<p class="hint">The records are read once for all units of this part. The index is kept in the folder of the run.</p>`}
    ${current?.records && html`<${Matches} value=${current} heads=${chosen.heads} busy=${matches.busy} openRecord=${openRecord} /><${Command} command=${current.command} />`}`;
}

/** The activations by layer. @param {any[]} all @returns {[string, any[]][]} */
function layersOf(all) {
  const layers = new Map();
  for (const one of all) layers.set(one.layer, [...(layers.get(one.layer) ?? []), one]);
  return [...layers];
}

/** @param {{chosen: any, unit: number, setUnit: (unit: number) => void}} props */
function Unit({ chosen, unit, setUnit }) {
  const last = chosen.units - 1;
  if (chosen.heads) return html`<${Field} label="Head"><select value=${unit} onChange=${(/** @type {any} */ event) => setUnit(Number(event.target.value))}>${Array.from({ length: chosen.units }, (_, head) => html`<option value=${head}>head ${head + 1}</option>`)}</select></${Field}>`;
  const clamped = (/** @type {number} */ to) => Math.max(0, Math.min(last, Math.round(to) || 0));
  return html`<div class="field"><label for="excited-unit">Unit, from 0 to ${last.toLocaleString("en")}</label><div class="together">
    <button type="button" aria-label="previous unit" disabled=${!unit} onClick=${() => setUnit(clamped(unit - 1))}>‹</button>
    <input id="excited-unit" type="number" min="0" max=${last} value=${unit} onChange=${(/** @type {any} */ event) => setUnit(clamped(Number(event.target.value)))} />
    <button type="button" aria-label="next unit" disabled=${unit >= last} onClick=${() => setUnit(clamped(unit + 1))}>›</button></div></div>`;
}

const line = (/** @type {string[]} */ letters) => letters.join("").replaceAll("\n", "↵");

/** @param {{value: any, heads: boolean, busy: boolean, openRecord: (text: string, at: number) => void}} props */
function Matches({ value, heads, busy, openRecord }) {
  const rows = value.records.map((/** @type {any} */ one) => {
    const [left, token, right] = one.parts;
    const [before, after] = [Array.from(left), Array.from(right)];
    return html`<tr data-record=${one.record} data-position=${one.position} data-value=${one.value}><td class="right number">${one.value.toPrecision(4)}</td>
      <td class="record">${before.length > AROUND ? "…" : ""}${line(before.slice(-AROUND))}<mark>${visible(token)}</mark>${line(after.slice(0, AROUND))}${after.length > AROUND ? "…" : ""}</td>
      <td><button type="button" aria-label=${`read record ${one.record + 1} at “${visible(token)}”`} onClick=${() => openRecord(left + token + right, one.at)}>read</button></td></tr>`;
  });
  return html`<div class=${`scroll ${busy ? "busy" : ""}`} tabindex="0" role="region" aria-label="the records that excite it most"><table><caption class="unseen">The records that excite it most, the strongest first</caption><thead><tr><th scope="col" class="right">value</th><th scope="col">record, with the token</th><td></td></tr></thead><tbody>${rows}</tbody></table></div>
    <p class="hint">The largest value in each of ${value.note}${value.records.length ? "" : ": none is excited"}.${heads && " That of a head is the length of what it writes."}</p>`;
}
