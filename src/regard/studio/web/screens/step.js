// @ts-check
import { useLatest } from "../api.js";
import { Failure, Field, Figure, RunPicker } from "../components.js";
import { html, useEffect, useMemo, useRef } from "../vendor/preact.js";

const TYPING = 300; // milliseconds to wait for more letters

/** One position of an input, stage by stage.
 * @param {{run: string, text?: string, target?: string, position?: string, record?: string, setRun: (run: string) => void,
 *   setState: (patch: Record<string, any>) => void}} props */
export default function Step({ run, text = "", target = "", position = "", record = "", setRun, setState }) {
  const args = run ? { run, text, target, position: Number(position) || 0, record: Math.max(0, Math.round(Number(record) || 0)) } : null;
  const { value, error, busy } = useLatest("step", "trace", args, { delay: TYPING });
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const view = useRef(/** @type {any} */ (null)); // level and stage stay when another token is chosen
  const chosen = useRef(false);
  const component = useMemo(() => value && { ...value.figure, data: { ...value.figure.data, view: view.current } }, [value]);
  useEffect(() => {
    const box = place.current;
    if (!box) return;
    const choose = (/** @type {any} */ event) => {
      chosen.current = true;
      setState({ position: event.detail + 1 });
    };
    const keep = (/** @type {any} */ event) => void (view.current = event.detail);
    box.addEventListener("choose-token", choose);
    box.addEventListener("view", keep);
    return () => {
      box.removeEventListener("choose-token", choose);
      box.removeEventListener("view", keep);
    };
  });
  useEffect(() => {
    if (!chosen.current) return;
    chosen.current = false;
    /** @type {HTMLElement | null} */ (place.current?.querySelector(".token.chosen") ?? null)?.focus();
  }, [component]);
  const typed = (/** @type {string} */ name) => (/** @type {any} */ event) => setState({ [name]: event.target.value, position: "" });
  return html`<div class="tools"><${RunPicker} run=${run} setRun=${setRun} />
      ${run && value?.reads_text !== false && html`<${Field} label="Input (empty: a held-out record)"><input value=${text} onInput=${typed("text")} spellcheck=${false} /></${Field}>`}
      ${run && !text && html`<${Field} label="Held-out record, from 0"><input type="number" min="0" value=${record || 0} onInput=${typed("record")} /></${Field}>`}
      ${value?.reads_pairs && html`<${Field} label="Translation (empty: the model's own)"><input value=${target} onInput=${typed("target")} spellcheck=${false} /></${Field}>`}</div>
    <${Failure} error=${error} />
    ${value?.notes.map((/** @type {string} */ note) => html`<p>${note}</p>`)}
    ${!run && html`<p>Choose a run: every number of one token, from the input to the output.</p>`}
    <div ref=${place} aria-busy=${busy}><${Figure} component=${error ? null : component} /></div>`;
}
