// A stack without a mask, pooled, and a head (models/encoder.py). It reads ids, or the rows of patches, which are
// pixels; <S> comes first.

// The weight of each position in the mean of a text.
function poolingWeights(config, x, score, width, length) {
  if (config.pooling === "sum") return new Float64Array(length).fill(1);
  if (config.pooling === "first") return Float64Array.from({ length }, (_, t) => (t ? 0 : 1));
  if (config.pooling !== "attention") return new Float64Array(length).fill(1 / length);
  const raw = new Float32Array(length);
  linear(raw, x, score, null, 0, length);
  const total = logSumExp(raw, 0, length);
  return Float64Array.from(raw, (value) => Math.exp(value - total));
}

function pool(config, x, score, width, length) {
  const pooled = new Float32Array(width);
  if (config.pooling === "max")
    return pooled.map((_, i) => Array.from({ length }, (_, t) => x[t * width + i]).reduce((a, b) => Math.max(a, b)));
  const weights = poolingWeights(config, x, score, width, length);
  const sums = new Float64Array(width);
  for (let t = 0; t < length; t++) for (let i = 0; i < width; i++) sums[i] += weights[t] * x[t * width + i];
  return Float32Array.from(sums);
}

// Pixels, standardised, times a matrix; the marker stands for <S>.
function embedPatches(x, pixels, tensors, width) {
  const [weight, bias, marker, mean, deviation] =
    ["project.weight", "project.bias", "marker"].map((name) => tensors(`encoder.embedding.${name}`)).concat([tensors("mean"), tensors("deviation")]);
  const count = weight.columns;
  const features = Float32Array.from(pixels, (value, i) => (value - mean.data[i % count]) / deviation.data[i % count]);
  const patches = pixels.length / count;
  const rows = new Float32Array(patches * width);
  linear(rows, features, weight, bias, 0, patches);
  x.set(marker.data);
  x.set(rows, width);
}

programs.encoder = (config, tensors) => {
  const { d_model: width, scale_embedding: scaled } = config;
  const [ids, added, score] = [tensors("encoder.embedding.weight"), tensors("added"), tensors("pool.score.weight")];
  const [pooler, poolerBias, head, headBias] = ["pooler.weight", "pooler.bias", "head.weight", "head.bias"].map(tensors);
  const stack = makeStack(config, tensors, "encoder.", false);
  const embeddingNorm = config.embedding_norm ? makeNorm(config, tensors, "encoder.embedding_norm") : null;
  const lengthOf = (input) => (ids ? input.length : 1 + input.length / tensors("encoder.embedding.project.weight").columns);
  const embed = (trace, input) => {
    const length = lengthOf(input);
    const x = trace.rows("embedding", width, length);
    if (ids) embedIds(x, input, ids, config, added, 0);
    else {
      embedPatches(x, input, tensors, width);
      for (let i = 0; i < length * width; i++) x[i] = x[i] * (scaled ? Math.sqrt(width) : 1) + (added ? added.data[i] : 0);
    }
    return [x, length];
  };
  return {
    causal: false, vocab: head.rows, longest: ids ? config.max_len : Infinity, heads: stack.heads, hidden: stack.hidden, length: lengthOf,
    run(trace, input) {
      const [x, length] = embed(trace, input);
      if (embeddingNorm) embeddingNorm(x, x, 0, length);
      const normed = stack.run(trace, 0, length);
      let pooled = pool(config, normed, score, width, length);
      if (pooler) {
        const dense = new Float32Array(width);
        linear(dense, pooled, pooler, poolerBias, 0, 1);
        pooled = dense.map(Math.tanh);
      }
      linear(trace.rows("logits", head.rows, 1), pooled, head, headBias, 0, 1);
      trace.done("logits", 0, 1);
    },
  };
};
