// Linear models of n-grams (models/linear.py). An n-gram is a number in base V + 1 with the digits id + 1; its code
// is twice that number, times the positions that are told apart, plus the position. Codes exceed 53 bits.
programs.linear = (config, tensors) => {
  const codes = BigUint64Array.from(tensors("codes").data, BigInt);
  const [idf, coefficients, bias] = ["idf", "coefficients", "bias"].map(tensors);
  const [base, positions] = [BigInt(config.vocab_size + 1), BigInt(config.n_positions)];
  const classes = coefficients.rows;

  const find = (code) => {
    let [low, high] = [0, codes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      codes[middle] < code ? (low = middle + 1) : (high = middle);
    }
    return codes[low] === code ? low : -1;
  };
  // The known n-grams of a text: which, where they start, of how many tokens. Markers only stand at their ends.
  const ngramsOf = (ids) => {
    const found = [];
    for (let start = 0; start < ids.length; start++) {
      let number = 0n;
      for (let n = 1; n <= config.order && start + n <= ids.length; n++) {
        const id = ids[start + n - 1];
        if (n > 2 && config.markers.includes(ids[start + n - 2])) break;
        number = number * base + BigInt(id + 1);
        if (n === 1 && config.markers.includes(id)) continue;
        const index = find(2n * number * positions + (positions > 1n ? BigInt(start) : 0n));
        if (index >= 0) found.push({ index, start, n });
      }
    }
    return found;
  };
  // The value of each n-gram: its count, 1, or (1 + log count) · idf in rows of unit length.
  const featuresOf = (found) => {
    const counts = new Map();
    for (const { index } of found) counts.set(index, (counts.get(index) ?? 0) + 1);
    if (config.weighting === "counts") return { counts, values: counts };
    const weigh = config.weighting === "binary" ? () => 1 : (count, index) => (1 + Math.log(count)) * idf.data[index];
    const values = new Map([...counts].map(([index, count]) => [index, weigh(count, index)]));
    if (config.weighting === "binary") return { counts, values };
    const length = Math.hypot(...values.values()) || 1;
    return { counts, values: new Map([...values].map(([index, value]) => [index, value / length])) };
  };
  return {
    causal: false, vocab: classes, longest: Infinity, heads: [], hidden: [],
    run(trace, ids) {
      const logits = trace.rows("logits", classes, 1);
      const { values } = featuresOf(ngramsOf(ids));
      for (let o = 0; o < classes; o++) {
        let sum = bias.data[o];
        for (const [index, value] of values) sum += value * coefficients.data[o * coefficients.columns + index];
        logits[o] = sum;
      }
      if (config.normalized) {
        const total = logSumExp(logits, 0, classes);
        for (let o = 0; o < classes; o++) logits[o] -= total;
      }
    },
    // What each token adds to a score: the share of it in its n-grams.
    evidence(ids, o) {
      const shares = new Float64Array(ids.length);
      const found = ngramsOf(ids);
      const { counts, values } = featuresOf(found);
      for (const { index, start, n } of found) {
        const each = (values.get(index) / counts.get(index) / n) * coefficients.data[o * coefficients.columns + index];
        for (let t = start; t < start + n; t++) shares[t] += each;
      }
      return shares;
    },
  };
};
