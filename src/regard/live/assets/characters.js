// A text is cut into pieces by a pattern, at first into characters (tokenizers/text.py); a piece that is not in the
// vocabulary is spelled character by character. An alphabet may read some characters as others.
const readers = {}; // by name: config → {encode(text) → ids, decode(ids) → text}

const halfPair = /^[\ud800-\udfff]$/; // what a browser may hold while an emoji is typed

readers.characters = (config) => {
  const ids = new Map(config.tokens.map((token, i) => [token, i + config.names.length - config.tokens.length]));
  const reads = new Map(Object.entries(config.reads));
  const pattern = new RegExp(config.pattern, "gu");
  const read = (text) => Array.from(text).filter((c) => !halfPair.test(c)).map((c) => reads.get(c) ?? c).join("");
  const spell = (piece) => (ids.has(piece) ? [ids.get(piece)] : Array.from(piece, (c) => ids.get(c) ?? config.unk));
  return {
    encode: (text) => (read(text).match(pattern) ?? []).flatMap(spell),
    decode: (tokens) => tokens.map((id) => config.names[id]).join(""),
  };
};
