// @ts-check
// Tokens and numbers in words.

const NAMED = /** @type {Record<string, string>} */ ({ " ": "·", "\n": "↵", "\t": "⇥" });

/** A token with its spaces and control characters made readable. @param {string} token */
export function visible(token) {
  if (token === "") return "∅";
  return token.replace(/[ \n\t]/g, (c) => NAMED[c]).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => (c === "\u200c" || c === "\u200d" ? c : `⟨${/** @type {number} */ (c.codePointAt(0)).toString(16).toUpperCase().padStart(4, "0")}⟩`));
}

/** Three digits. @param {number} value */
export function amount(value) {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text = size && size < 0.001 ? size.toExponential(1) : size >= 1000 ? Math.round(size).toLocaleString("en") : String(Number(size.toPrecision(3)));
  return (value < 0 ? "−" : "") + text;
}

export const percent = (/** @type {number} */ p) => (p > 0 && p < 0.0005 ? "<0.1%" : `${(100 * p).toFixed(1)}%`);

/** @param {number} bits */
export function surprise(bits) {
  if (Number.isNaN(bits)) return "not scored";
  if (bits === Infinity) return "impossible (probability 0)";
  return `${amount(bits)} bits, probability ${percent(2 ** -bits)}`;
}
