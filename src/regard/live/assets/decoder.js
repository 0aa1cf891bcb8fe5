// A causal stack that predicts the next token (models/decoder.py).
programs.decoder = (config, tensors) => {
  const [embedding, added] = [tensors("embedding.weight"), tensors("added")];
  const head = config.tied ? embedding : tensors("head.weight");
  const stack = makeStack(config, tensors, "", true);
  return {
    causal: true, vocab: head.rows, longest: config.max_len, heads: stack.heads, hidden: stack.hidden,
    run(trace, ids, from) {
      embedIds(trace.rows("embedding", embedding.columns, ids.length), ids, embedding, config, added, from);
      const normed = stack.run(trace, from, ids.length);
      linear(trace.rows("logits", head.rows, ids.length), normed, head, null, from, ids.length);
      trace.done("logits", from, ids.length);
    },
  };
};
