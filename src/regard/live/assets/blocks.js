// A stack of blocks: a mixer, then a network for each position, both added to the residual stream
// (layers/block.py, models/transformer.py).
const MIXERS = {
  attention: (config, tensors, prefix, causal) => makeAttention(config, tensors, prefix, causal, false),
  window: (config, tensors, prefix, causal) => makeAttention(config, tensors, prefix, causal, true),
  hyena: makeHyena,
};

function makeNorm(config, tensors, name) {
  const options = { width: config.d_model, eps: config.norm_eps, gain: tensors(`${name}.weight`), bias: tensors(`${name}.bias`) };
  return (y, x, from, to) => norms[config.norm](y, x, options, from, to);
}

function makeFeedforward(config, tensors, prefix) {
  const gated = config.feedforward === "swiglu";
  const [up, upBias] = ["weight", "bias"].map((name) => tensors(`${prefix}${gated ? "gate_up" : "up"}.${name}`));
  const [down, downBias] = ["weight", "bias"].map((name) => tensors(`${prefix}down.${name}`));
  const [width, activation] = [down.columns, activations[gated ? "silu" : config.feedforward]];
  return (trace, name, x, y, from, to) => {
    const [wide, hidden] = [trace.rows(name("up"), up.rows, to), trace.rows(name("hidden"), width, to)];
    linear(wide, x, up, upBias, from, to);
    for (let t = from; t < to; t++)
      for (let i = 0; i < width; i++) {
        const at = t * up.rows + i;
        hidden[t * width + i] = gated ? activation(wide[at]) * wide[at + width] : activation(wide[at]);
      }
    trace.done(name("hidden"), from, to);
    linear(y, hidden, down, downBias, from, to);
  };
}

// x + part(norm(x)); post-norm: norm(x + part(x)).
function runPart(trace, name, part, norm, post, x, sum, width, from, to) {
  const [normed, output] = [trace.rows(name("norm"), width, to), trace.rows(name("output"), width, to)];
  if (!post) {
    norm(normed, x, from, to);
    trace.done(name("norm"), from, to);
  }
  part(trace, name, post ? x : normed, output, from, to);
  trace.done(name("output"), from, to);
  add(sum, x, output, width, from, to);
  if (!post) return;
  norm(normed, sum, from, to);
  trace.done(name("norm"), from, to);
  sum.set(normed.subarray(from * width, to * width), from * width);
}

function makeStack(config, tensors, prefix, causal) {
  const { d_model: width, post_norm: post } = config;
  const blocks = config.mixers.map((mixer, i) => {
    const at = `${prefix}blocks.${i}.`;
    return {
      mixer: MIXERS[mixer](config, tensors, `${at}mixer.`, causal),
      mixerNorm: makeNorm(config, tensors, `${at}mixer_norm`),
      feedforward: makeFeedforward(config, tensors, `${at}feedforward.`),
      feedforwardNorm: makeNorm(config, tensors, `${at}feedforward_norm`),
    };
  });
  const last = post ? null : makeNorm(config, tensors, `${prefix}norm`);
  const attending = config.mixers.map((mixer, i) => ({ mixer, i })).filter(({ mixer }) => mixer !== "hyena");
  return {
    heads: attending.map(({ i }) => ({ name: `block.${i}.attention`, label: `layer ${i + 1}`, count: config.n_heads, width: config.d_head })),
    hidden: [{ name: "embedding", label: "embedding", count: width },
      ...blocks.map((_, i) => ({ name: `block.${i}.output`, label: `residual stream after layer ${i + 1}`, count: width }))],
    // From the rows of `embedding` to those of `norm`.
    run(trace, from, to) {
      trace.done("embedding", from, to);
      let x = trace.get("embedding").data;
      blocks.forEach((block, i) => {
        const name = (part) => (inner) => `block.${i}.${part}.${inner}`;
        const residual = trace.rows(`block.${i}.attention.residual`, width, to);
        runPart(trace, name("attention"), block.mixer, block.mixerNorm, post, x, residual, width, from, to);
        trace.done(`block.${i}.attention.residual`, from, to);
        const output = trace.rows(`block.${i}.output`, width, to);
        runPart(trace, name("feedforward"), block.feedforward, block.feedforwardNorm, post, residual, output, width, from, to);
        trace.done(`block.${i}.output`, from, to);
        x = output;
      });
      const normed = trace.rows("norm", width, to);
      if (last) last(normed, x, from, to);
      else normed.set(x.subarray(from * width, to * width), from * width);
      trace.done("norm", from, to);
      return normed;
    },
  };
}

// Rows of ids in an embedding, with what positions add.
function embedIds(x, ids, embedding, config, added, from) {
  const width = embedding.columns;
  const factor = config.scale_embedding ? Math.sqrt(width) : 1;
  for (let t = from; t < ids.length; t++)
    for (let i = 0; i < width; i++)
      x[t * width + i] = embedding.data[ids[t] * width + i] * factor + (added ? added.data[t * width + i] : 0);
}
