// Hyena: streams of the input, smoothed by a short filter, gate each other and pass through filters as long as the
// text, which a small network of sines computes from the distance (layers/hyena.py).
const SHORT_FILTER = 3;
const [BANDS, FASTEST, SLOWEST, DECAYED] = [16, 5, 1.5, 1e-2];

// Filters by distance: row d has the factor of each channel for an input d positions away.
function makeFilters(tensors, prefix, width, maxLen) {
  const weights = [0, 1, 2].map((n) => tensors(`${prefix}weights.${n}`));
  const [biases, frequency, out, skip] = ["biases", "frequency", "out", "skip"].map((name) => tensors(prefix + name));
  const channels = out.rows;
  const longest = SLOWEST * maxLen;
  const rates = Array.from({ length: width }, (_, i) =>
    (-Math.log(DECAYED) / longest) * Math.max(1, longest / FASTEST) ** (width > 1 ? i / (width - 1) : 0));
  const rows = [];
  const features = (distance) => {
    const logDistance = Math.log1p(distance) / Math.log1p(maxLen);
    const angles = Array.from({ length: BANDS }, (_, i) => 2 * Math.PI * logDistance * (1e-4 + (i * (BANDS - 1 - 1e-4)) / (BANDS - 1)));
    return [logDistance, ...angles.map(Math.cos), ...angles.map(Math.sin)];
  };
  const rowOf = (distance) => {
    let x = features(distance);
    weights.forEach((weight, n) => {
      const before = x;
      x = Array.from({ length: weight.rows }, (_, o) => {
        let sum = biases.data[n * biases.columns + o];
        for (let i = 0; i < weight.columns; i++) sum += before[i] * weight.data[o * weight.columns + i];
        return Math.sin(frequency.data[n * frequency.columns + o] * sum);
      });
    });
    return Float64Array.from({ length: channels }, (_, c) => {
      let sum = 0;
      for (let i = 0; i < x.length; i++) sum += x[i] * out.data[c * out.columns + i];
      const rate = rates[c % width];
      const window = Math.exp(-rate * distance) * Math.sqrt(-Math.expm1(-2 * rate));
      return sum * window + (distance ? 0 : skip.data[c]);
    });
  };
  return (distance) => {
    while (rows.length <= distance) rows.push(rowOf(rows.length));
    return rows[distance];
  };
}

function makeHyena(config, tensors, prefix, causal) {
  const { d_model: width, order } = config;
  const [streams, streamBias, out, outBias, short] =
    ["streams.weight", "streams.bias", "out.weight", "out.bias", "short"].map((name) => tensors(prefix + name));
  const filters = makeFilters(tensors, `${prefix}filters.`, width, config.max_len);
  const ahead = causal ? null : makeFilters(tensors, `${prefix}ahead.`, width, config.max_len);
  const back = causal ? SHORT_FILTER - 1 : SHORT_FILTER >> 1;

  const smooth = (y, x, from, to) => {
    const all = streams.rows;
    for (let t = from; t < to; t++)
      for (let i = 0; i < all; i++) {
        let sum = 0;
        for (let n = 0; n < SHORT_FILTER; n++) {
          const s = t - back + n;
          if (s >= 0 && s < to) sum += x[s * all + i] * short.data[n * all + i];
        }
        y[t * all + i] = sum;
      }
  };
  // y[t] = Σ filter(t - s) · u[s] over s up to t, and with filters ahead over later ones too.
  const convolve = (y, u, offset, from, to) => {
    const sum = new Float64Array(width);
    for (let t = from; t < to; t++) {
      sum.fill(0);
      for (let s = 0; s < (causal ? t + 1 : to); s++) {
        const filter = s > t ? ahead(s - t - 1) : filters(t - s);
        for (let i = 0; i < width; i++) sum[i] += filter[offset + i] * u[s * width + i];
      }
      y.set(sum, t * width);
    }
  };
  return (trace, name, x, y, from, to) => {
    const [raw, smoothed] = [trace.rows(name("streams"), streams.rows, to), trace.rows(name("smoothed"), streams.rows, to)];
    linear(raw, x, streams, streamBias, from, to);
    smooth(smoothed, raw, from, to);
    const [gates, values] = [trace.rows(name("gates"), order * width, to), trace.rows(name("values"), width, to)];
    for (let t = from; t < to; t++) {
      gates.set(smoothed.subarray(t * streams.rows, t * streams.rows + order * width), t * order * width);
      values.set(smoothed.subarray(t * streams.rows + order * width, (t + 1) * streams.rows), t * width);
    }
    trace.done(name("gates"), from, to);
    trace.done(name("values"), from, to);
    let v = values;
    const gated = (into, n) => {
      for (let t = from; t < to; t++)
        for (let i = 0; i < width; i++) into[t * width + i] = v[t * width + i] * gates[(t * order + n) * width + i];
      return into;
    };
    for (let n = order - 1; n > 0; n--) {
      const u = gated(trace.rows(name(`gated.${n}`), width, to), n);
      v = trace.rows(name(`convolved.${n}`), width, to);
      convolve(v, u, (order - 1 - n) * width, from, to);
    }
    linear(y, gated(trace.rows(name("mixed"), width, to), 0), out, outBias, from, to);
  };
}
