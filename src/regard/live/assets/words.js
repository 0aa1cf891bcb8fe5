// A token is one whitespace character with the run of other characters after it; a space is put before the text.
readers.words = (config) => {
  const ids = new Map(config.tokens.map((token, i) => [token, i + config.names.length - config.tokens.length]));
  const piece = new RegExp(`[${config.whitespace}][^${config.whitespace}]*`, "gu");
  return {
    encode: (text) => (text ? ` ${text}`.match(piece).map((word) => ids.get(word) ?? config.unk) : []),
    decode: (tokens) => tokens.map((id) => (id === config.unk ? ` ${config.names[id]}` : config.names[id])).join("").replace(/^ /, ""),
  };
};
