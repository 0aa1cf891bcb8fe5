// @ts-check
// Actions of the server. An answer is a JSON head and the bytes of its arrays (`wire.py`).
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @typedef {Record<string, any>} Answer */

const ARRAYS = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };

/** An error that the server answered with; `status` is 400 for a mistake of the user, `details` are further lines. */
export class Refused extends Error {
  /** @param {string} message @param {number} status @param {string[]} [details] */
  constructor(message, status, details = []) {
    super(message);
    this.status = status;
    this.details = details;
  }
}

/** Read an answer; arrays are typed arrays with a `shape`.
 * @param {ArrayBuffer} buffer @returns {Answer} */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const start = Math.ceil((4 + length) / 8) * 8;
  const head = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  return JSON.parse(head, (_, value) => {
    if (!value || typeof value !== "object" || !("$array" in value)) return value;
    const [offset, dtype, shape] = value.$array;
    const count = shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
    const Typed = ARRAYS[/** @type {keyof typeof ARRAYS} */ (dtype)];
    return Object.assign(new Typed(buffer, start + offset, count), { shape });
  });
}

/** Post to the server. @param {string} path @param {BodyInit} body @param {RequestInit} [options] */
export async function post(path, body, options = {}) {
  const answer = await fetch(path, { method: "POST", body, headers: { "X-Regard": "1" }, ...options }).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Refused("The studio does not answer: it was closed. Start it again with `regard studio`.", 0);
  });
  if (answer.ok) return answer;
  const { error, details } = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (answer.status === 401) dispatchEvent(new Event("signed-out"));
  throw new Refused(error, answer.status, details);
}

/** Call an action of a screen.
 * @param {string} screen @param {string} action @param {Record<string, any>} [args]
 * @param {{signal?: AbortSignal}} [options] @returns {Promise<Answer>} */
export async function call(screen, action, args = {}, options = {}) {
  const answer = await post(`/api/${screen}/${action}`, JSON.stringify(args), options);
  return decode(await answer.arrayBuffer());
}

/** Put a file among the uploads; return its path, as a command takes it.
 * @param {File} file @returns {Promise<string>} */
export async function upload(file) {
  const answer = await post(`/upload?name=${encodeURIComponent(file.name)}`, file);
  return (await answer.json()).path;
}

/** The answer to the newest arguments; older requests are aborted and their answers dropped. The value stays while the
 * next one is on its way. `args` null asks for nothing; `delay` waits for more typing; `every` asks again and again.
 * @param {string} screen @param {string} action @param {Record<string, any> | null} args
 * @param {{delay?: number, every?: number, again?: any}} [options] in milliseconds; a new `again` asks anew
 * @returns {{value: any, error: Error | null, busy: boolean}} */
export function useLatest(screen, action, args, { delay = 0, every = 0, again = null } = {}) {
  const [state, setState] = useState({ value: /** @type {any} */ (null), error: /** @type {Error | null} */ (null), busy: false });
  const key = args && JSON.stringify(args);
  const asked = useRef("");
  useLayoutEffect(() => { // asked before the frame is drawn, not after it
    if (key === null) return;
    const control = new AbortController();
    let timer = 0;
    const ask = async () => {
      try {
        const value = await call(screen, action, JSON.parse(key), { signal: control.signal });
        if (!control.signal.aborted) setState({ value, error: null, busy: false });
      } catch (error) {
        if (!control.signal.aborted) setState((old) => ({ ...old, error: /** @type {Error} */ (error), busy: false }));
      }
      if (every && !control.signal.aborted) timer = setTimeout(ask, document.hidden ? 4 * every : every);
    };
    const name = `${screen}/${action}`;
    setState((old) => ({ value: asked.current === name ? old.value : null, error: null, busy: true }));
    asked.current = name;
    if (delay) timer = setTimeout(ask, delay);
    else ask();
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [screen, action, key, delay, every, again]);
  return state;
}
