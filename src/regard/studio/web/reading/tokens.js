// @ts-check
// The tokens of a text, page by page: only pages in view are read, and only they are coloured.
import { call } from "../api.js";
import { useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";

const PAGE = 1600; // characters

/** @typedef {{start: number, stop: number, text: string}} TextPage */
/** @typedef {{first: number, names: string[], starts: Int32Array | number[], ends: Int32Array | number[], bits: Float32Array | null, ranks: Int32Array | null}} Part */
/** @typedef {{i: number, name: string, start: number, end: number, bits: number, rank: number}} Token */

/** Cut a text into pages, at the end of a line or a word where there is one. @param {string} text @returns {TextPage[]} */
export function split(text, most = PAGE) {
  const pages = [];
  let start = 0;
  while (text.length - start > 1.5 * most) {
    const part = text.slice(start, start + most);
    const [line, word] = [part.lastIndexOf("\n"), part.lastIndexOf(" ")];
    let stop = start + (line > most / 2 ? line + 1 : word > most / 2 ? word + 1 : most);
    const code = text.charCodeAt(stop);
    if (code >= 0xdc00 && code < 0xe000) stop++; // not within a pair
    pages.push({ start, stop, text: text.slice(start, stop) });
    start = stop;
  }
  pages.push({ start, stop: text.length, text: text.slice(start) });
  return pages;
}

/** Token of unknown pages are missing: `at` and `find` return null there. */
export class Tokens {
  constructor() {
    /** @type {Map<number, Part>} by the start of the page */
    this.parts = new Map();
    this.count = -1;
  }

  /** @param {number} start of a page @param {any} answer */
  add(start, answer) {
    const part = this.parts.get(start);
    this.count = answer.count;
    if (!part) return void this.parts.set(start, { first: answer.first, names: answer.names, starts: answer.starts, ends: answer.ends, bits: answer.bits ?? null, ranks: answer.ranks ?? null });
    const skip = part.first + part.names.length - answer.first; // tokens that both have
    const join = (/** @type {any} */ a, /** @type {any} */ b) => (a && b ? Float64Array.from([...a, ...b.slice(skip)]) : null);
    part.names = [...part.names, ...answer.names.slice(skip)];
    for (const key of ["starts", "ends", "bits", "ranks"]) /** @type {any} */ (part)[key] = join(/** @type {any} */ (part)[key], answer[key]);
  }

  /** @returns {Token | null} */
  at(/** @type {number} */ i) {
    for (const part of this.parts.values()) {
      const k = i - part.first;
      if (k >= 0 && k < part.names.length)
        return { i, name: part.names[k], start: part.starts[k], end: part.ends[k], bits: part.bits ? part.bits[k] : NaN, rank: part.ranks ? part.ranks[k] : 0 };
    }
    return null;
  }

  /** The number of the token at a place of the text: the one that begins there or holds it; after the last one their
   * count. @param {number} offset @returns {number | null} */
  find(offset) {
    for (const part of this.parts.values()) {
      const n = part.names.length;
      if (!n || offset < part.starts[0] || offset > part.ends[n - 1]) continue;
      let [low, high] = [0, n];
      while (low < high) { // the first token that ends after the place, or has no letters and stands there
        const middle = (low + high) >> 1;
        if (part.ends[middle] > offset || (part.starts[middle] === part.ends[middle] && part.starts[middle] >= offset)) high = middle;
        else low = middle + 1;
      }
      if (low < n) return part.first + low;
      if (part.first + n === this.count) return this.count;
    }
    return this.count === 0 ? 0 : null;
  }

  /** The token with the most bits. @returns {Token | null} */
  get worst() {
    let found = /** @type {any} */ (null);
    for (const part of this.parts.values())
      part.bits?.forEach((b, k) => { if (Number.isFinite(b) && part.ends[k] > part.starts[k] && (!found || b > found.bits)) found = this.at(part.first + k); });
    return found;
  }

  /** The greatest finite bits. */
  get most() {
    let most = 0;
    for (const { bits } of this.parts.values()) bits?.forEach((b) => Number.isFinite(b) && b > most && (most = b));
    return most;
  }
}

/** Read the pages in view, the newest text first of all; what is on its way for an older one is dropped.
 * @param {{run: string, text: string, second: string, off: string[], shown: string, visible: number[], ready: boolean,
 * caret: number}} what */
export function useTokens({ run, text, second, off, shown, visible, ready, caret }) {
  const pages = useMemo(() => split(shown), [shown]);
  const [state, setState] = useState({ tokens: new Tokens(), version: 0, error: /** @type {Error | null} */ (null), busy: false });
  const held = useRef({ key: "", tokens: new Tokens() });
  const key = JSON.stringify([run, text, second, off]);
  const wanted = visible.filter((i) => i < pages.length);
  useLayoutEffect(() => { // asked before the frame is drawn, not after it
    if (!ready || !run) return;
    if (held.current.key !== key) held.current = { key, tokens: new Tokens() };
    const { tokens } = held.current;
    const missing = wanted.map((i) => pages[i]).filter((page) => !tokens.parts.has(page.start));
    if (!missing.length) return;
    const far = (/** @type {TextPage} */ page) => (caret < page.start ? page.start - caret : Math.max(0, caret - page.stop));
    missing.sort((a, b) => far(a) - far(b)); // the page with the caret first
    const control = new AbortController();
    const load = async () => {
      for (const page of missing) {
        let [from, more] = [page.start, true];
        while (more) {
          const answer = await call("read", "read", { run, text, second, off, start: from, stop: page.stop }, { signal: control.signal });
          const before = tokens.parts.get(page.start)?.names.length ?? 0;
          tokens.add(page.start, answer);
          const part = /** @type {Part} */ (tokens.parts.get(page.start));
          const n = part.names.length;
          from = n ? part.ends[n - 1] : page.stop;
          more = n > before && part.first + n < tokens.count && from < page.stop;
          const reads = more || page !== missing[missing.length - 1];
          setState((old) => ({ tokens, version: old.version + 1, error: null, busy: reads }));
        }
      }
    };
    setState((old) => ({ ...old, busy: true }));
    load().catch((error) => !control.signal.aborted && setState((old) => ({ ...old, error, busy: false })));
    return () => control.abort();
  }, [key, wanted.join(), pages, ready]);
  return { pages, ...state, current: held.current.key === key && state.tokens === held.current.tokens };
}
