// @ts-check
// The records of the film as points that move from validation to validation.
import { Legend, cellOf, coloursOf } from "../columns.js";
import { Field } from "../components.js";
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
// @ts-ignore: made of the components of `regard look`
import { canvasPlane, visible } from "/look.js";

const EXPECTED = "expected at this step";

/** @param {{value: any, shown: number, number: number, setNumber: (number: number) => void}} props */
export function FilmMap({ value, shown, number, setNumber }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const tools = useRef(/** @type {HTMLElement | null} */ (null));
  const map = useRef(/** @type {any} */ (null));
  const seen = useRef(shown);
  const [colour, setColour] = useState("");
  const [hidden, setHidden] = useState(/** @type {Set<number>} */ (new Set()));
  const names = useMemo(() => value.names.map((/** @type {string} */ name) => visible(name, false)), [value]);
  const columns = { ...value.columns, ...(value.expected ? { [EXPECTED]: expectedAt(value, shown) } : {}) };
  const chosen = columns[colour] ? colour : Object.keys(columns)[0] ?? "";
  const column = columns[chosen];
  const pointsAt = (/** @type {number} */ f) => value.points.subarray(2 * f * names.length, 2 * (f + 1) * names.length);
  seen.current = shown;
  useEffect(() => {
    const lines = (/** @type {number} */ i) => {
      const now = { ...value.columns, ...(value.expected ? { [EXPECTED]: expectedAt(value, seen.current) } : {}) };
      return [names[i], ...Object.keys(now).map((name) => `${name}: ${visible(cellOf(now[name], i), false)}`)];
    };
    map.current = canvasPlane({ points: pointsAt(shown), all: value.points, names, title: "records of the film", lines, choose: setNumber });
    place.current?.replaceChildren(map.current.box);
    tools.current?.replaceChildren(map.current.tools);
  }, [value]);
  useEffect(() => map.current.move(pointsAt(shown)), [value, shown]);
  useEffect(() => map.current.update({ ...coloursOf(column, hidden), chosen: number, nameAll: false }), [value, chosen, hidden, number, chosen === EXPECTED && shown]);
  const toggle = (/** @type {number} */ group) => setHidden(new Set(hidden.has(group) ? [...hidden].filter((one) => one !== group) : [...hidden, group]));
  const choose = (/** @type {any} */ event) => {
    setHidden(new Set());
    setColour(event.target.value);
  };
  return html`<div class="film-map"><h3>All records</h3>
    <div class="tools">${chosen && html`<${Field} label="Colour"><select value=${chosen} onChange=${choose}>${Object.keys(columns).map((name) => html`<option value=${name}>${name}</option>`)}</select></${Field}>`}<span ref=${tools}></span></div>
    <${Legend} column=${column} hidden=${hidden} toggle=${toggle} />
    <div ref=${place} data-shown=${shown}></div>
    <p class="hint">The mean last hidden vector of each record, along the two main directions of that step, turned to fit the step before. All steps have one scale. Arrow keys walk from point to point; Enter chooses a record.</p></div>`;
}

/** The most probable answers at a step, as a column. @param {any} value @param {number} frame */
function expectedAt(value, frame) {
  const n = value.names.length;
  return { names: value.expected.names, codes: value.expected.codes.subarray(frame * n, (frame + 1) * n) };
}
