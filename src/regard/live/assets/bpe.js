// Byte-level byte-pair encoding: a text is cut into words, numbers and runs of punctuation; the bytes of each are
// merged pair by pair, the earliest learned first (tokenizers/text.py).
const BLANK = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORD = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${BLANK}\\p{L}\\p{N}]+|[${BLANK}]+(?![^${BLANK}])|[${BLANK}]+`, "gu");
const SPECIAL = /(<(?=(?:pad|S|E|unk)>))/u;

readers.bpe = (config) => {
  const first = config.names.length - config.tokens.length;
  const ids = new Map(config.tokens.map((token, i) => [token, i + first]));
  const ranks = new Map(config.merges.map((pair, i) => [pair.join(" "), i]));
  const byteOf = new Map(Array.from(config.alphabet, (character, byte) => [character, byte]));
  const alphabet = Array.from(config.alphabet);
  const known = new Map(); // pieces that were merged before
  const merge = (piece) => {
    if (known.has(piece)) return known.get(piece);
    let parts = Array.from(new TextEncoder().encode(piece), (byte) => alphabet[byte]);
    while (parts.length > 1) {
      let [best, at] = [Infinity, -1];
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) break;
      const [left, right] = parts.slice(at, at + 2);
      const merged = [];
      for (let i = 0; i < parts.length; i++) {
        const pair = parts[i] === left && parts[i + 1] === right;
        merged.push(pair ? left + right : parts[i]);
        if (pair) i++;
      }
      parts = merged;
    }
    const tokens = parts.map((part) => ids.get(part));
    known.set(piece, tokens);
    return tokens;
  };
  const pieces = (text) => (config.split ? text.split(SPECIAL).filter(Boolean).flatMap((part) => part.match(WORD)) : [text]);
  const bytes = (id) => Array.from(config.tokens[id - first] ?? "", (character) => byteOf.get(character));
  return {
    encode: (text) => (text ? pieces(text).flatMap(merge) : []),
    decode: (tokens) => new TextDecoder().decode(Uint8Array.from(tokens.flatMap(bytes))),
  };
};
