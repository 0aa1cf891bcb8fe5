// n-grams as a tree: the children of a node are the symbols that were counted after it, in order. P(x | c) is that
// of the child, or else floor(c) + weight(c) · P(x | c'), where c' is c without its first symbol (models/ngrams.py).
const [UNSEEN, ABSENT] = [-1, -2]; // instead of a node: a context never counted; one that is too short

programs.ngrams = (config, tensors) => {
  const [first, symbols, possible] = ["first", "symbols", "possible"].map((name) => tensors(name).data);
  const [p, weight, floor] = ["p", "weight", "floor"].map((name) => tensors(name).data);
  const [vocab, order] = [config.vocab_size, config.order];

  const child = (node, symbol) => {
    if (node < 0) return node;
    let [low, high] = [first[node], first[node + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      symbols[middle] < symbol ? (low = middle + 1) : (high = middle);
    }
    return low < first[node + 1] && symbols[low] === symbol ? vocab + low : UNSEEN;
  };
  // The node of the last `length` symbols up to position t.
  const contextOf = (ids, t, length) => {
    if (t + 1 < length) return ABSENT;
    let node = ids[t - length + 1];
    for (let i = t - length + 2; i <= t; i++) node = child(node, ids[i]);
    return node;
  };
  return {
    causal: true, vocab, longest: Infinity, heads: [], hidden: [],
    run(trace, ids, from) {
      const logits = trace.rows("logits", vocab, ids.length);
      const row = new Float64Array(vocab);
      for (let t = from; t < ids.length; t++) {
        row.set(p.subarray(0, vocab));
        for (let length = 1; length < order; length++) {
          const node = contextOf(ids, t, length);
          if (node === ABSENT) break;
          const [share, least] = node < 0 ? config.unseen[length] : [weight[node], floor[node]];
          for (let i = 0; i < vocab; i++) row[i] = share * row[i] + least * possible[i];
          if (node >= 0) for (let i = first[node]; i < first[node + 1]; i++) row[symbols[i]] = p[vocab + i];
        }
        for (let i = 0; i < vocab; i++) logits[t * vocab + i] = Math.log(row[i]);
      }
      trace.done("logits", from, ids.length);
    },
  };
};
