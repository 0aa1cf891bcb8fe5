// Self-attention: every position compares its query with the keys it may see, and takes the mean of their values
// weighted by the softmax of the scores (layers/attention.py).
const SCORES = {
  scaled_dot: (q, i, k, j, width) => innerProduct(q, i, k, j, width) / Math.sqrt(width),
  dot: innerProduct,
  negative_distance: (q, i, k, j, width) => -distanceOf(q, i, k, j, width),
  negative_log_distance: (q, i, k, j, width) => -Math.log(distanceOf(q, i, k, j, width)),
};
function innerProduct(x, i, y, j, width) {
  let sum = 0;
  for (let n = 0; n < width; n++) sum += x[i + n] * y[j + n];
  return sum;
}
function distanceOf(x, i, y, j, width) {
  let sum = 0;
  for (let n = 0; n < width; n++) sum += (x[i + n] - y[j + n]) ** 2;
  return Math.sqrt(Math.max(sum, 1e-12));
}

// Each head of a row is normalised, then turned by the angles of its position.
function turnHeads(rows, heads, width, { norm, cosine, sine }, from, to) {
  if (norm) norms.rms(rows, rows, { ...norm, width }, from * heads, to * heads);
  if (!cosine) return;
  const half = width / 2;
  for (let t = from; t < to; t++)
    for (let at = t * heads * width; at < (t + 1) * heads * width; at += width)
      for (let i = 0; i < half; i++) {
        const [x, y, c, s] = [rows[at + i], rows[at + half + i], cosine.data[t * half + i], sine.data[t * half + i]];
        rows[at + i] = x * c - y * s;
        rows[at + half + i] = y * c + x * s;
      }
}

// The scores of one query become weights, and these a mean of values.
function attendFrom(t, visible, { q, k, v, heads, groups, width, score, bias }) {
  const count = visible.length;
  const [raw, weights] = [new Float32Array(heads * visible.keys), new Float32Array(heads * visible.keys)];
  raw.fill(-Infinity);
  const mean = new Float32Array(heads * width);
  for (let h = 0; h < heads; h++) {
    const [group, at] = [Math.floor((h * groups) / heads), h * visible.keys];
    for (let i = 0; i < count; i++) {
      const s = visible.list ? visible.list[i] : i;
      const value = score(q, (t * heads + h) * width, k, (s * groups + group) * width, width);
      raw[at + s] = value + (bias ? bias.data[h * bias.columns + s - t + (bias.columns >> 1)] : 0);
    }
    const total = logSumExp(raw, at, visible.keys);
    for (let i = 0; i < count; i++) {
      const s = visible.list ? visible.list[i] : i;
      const weight = (weights[at + s] = Math.exp(raw[at + s] - total));
      for (let n = 0; n < width; n++) mean[h * width + n] += weight * v[(s * groups + group) * width + n];
    }
  }
  return { raw, weights, mean };
}

function makeAttention(config, tensors, prefix, causal, windowed) {
  const { n_heads: heads, n_kv_heads: groups, d_head: width } = config;
  const [qkv, qkvBias, out, outBias] = ["qkv.weight", "qkv.bias", "out.weight", "out.bias"].map((name) => tensors(prefix + name));
  const [cosine, sine, bias] = ["cosine", "sine", "bias"].map(tensors);
  const normOf = (name) => config.qk_norm && { gain: tensors(`${prefix}${name}.weight`), eps: config.norm_eps };
  const score = SCORES[config.score];
  const visibleTo = (t, length) => {
    const keys = causal ? t + 1 : length;
    if (!windowed) return { keys, length: keys, list: null };
    const { window, global_tokens: global } = config;
    const list = Array.from({ length: keys }, (_, s) => s).filter((s) => Math.abs(t - s) < window || s < global || t < global);
    return { keys, length: list.length, list };
  };
  return (trace, name, x, y, from, to) => {
    const joined = trace.rows(name("qkv"), qkv.rows, to);
    linear(joined, x, qkv, qkvBias, from, to);
    let column = 0;
    const part = (letter, count) => {
      const rows = trace.rows(name(letter), count * width, to);
      for (let t = from; t < to; t++)
        rows.set(joined.subarray(t * qkv.rows + column, t * qkv.rows + column + count * width), t * count * width);
      column += count * width;
      return rows;
    };
    const [q, k, v] = [part("q", heads), part("k", groups), part("v", groups)];
    turnHeads(q, heads, width, { norm: normOf("q_norm"), cosine, sine }, from, to);
    turnHeads(k, groups, width, { norm: normOf("k_norm"), cosine, sine }, from, to);
    for (const letter of "qkv") trace.done(name(letter), from, to);
    const mixed = trace.rows(name("heads"), heads * width, to);
    const [raws, weights] = [trace.list(name("scores")), trace.list(name("weights"))];
    for (let t = from; t < to; t++) {
      const { raw, weights: row, mean } = attendFrom(t, visibleTo(t, to), { q, k, v, heads, groups, width, score, bias });
      [raws[t], weights[t]] = [raw, row];
      mixed.set(mean, t * heads * width);
    }
    raws.length = weights.length = to;
    trace.done(name("heads"), from, to);
    linear(y, mixed, out, outBias, from, to);
  };
}
