// Every character is a token (tokenizers/text.py); an alphabet may read some characters as others.
const readers = {}; // by name: config → {encode(text) → ids, decode(ids) → text, pieces}

const withoutPair = (character) => !/^[\ud800-\udfff]$/.test(character);

readers.characters = (config) => {
  const ids = new Map(config.tokens.map((token, i) => [token, i + config.names.length - config.tokens.length]));
  const reads = new Map(Object.entries(config.reads));
  return {
    encode: (text) => Array.from(text).filter(withoutPair).map((c) => ids.get(reads.get(c) ?? c) ?? config.unk),
    decode: (tokens) => tokens.map((id) => config.names[id]).join(""),
  };
};
