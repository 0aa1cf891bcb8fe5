// Products, norms and activation functions. Activations are Float32Arrays with a row for every position; all
// functions compute the rows `from` to `to`.

// y = x Wᵀ + b. Four rows of W at a time share what is read of x, and sums are in double precision.
function linear(y, x, weight, bias, from, to) {
  const { data: w, rows: n, columns: m } = weight;
  for (let t = from; t < to; t++) {
    const at = t * m;
    let o = 0;
    for (; o + 4 <= n; o += 4) {
      let [a, b, c, d] = [0, 0, 0, 0];
      const [wa, wb, wc, wd] = [o * m, (o + 1) * m, (o + 2) * m, (o + 3) * m];
      for (let i = 0; i < m; i++) {
        const value = x[at + i];
        a += value * w[wa + i];
        b += value * w[wb + i];
        c += value * w[wc + i];
        d += value * w[wd + i];
      }
      const out = t * n + o;
      y[out] = a;
      y[out + 1] = b;
      y[out + 2] = c;
      y[out + 3] = d;
    }
    for (; o < n; o++) {
      let sum = 0;
      for (let i = 0; i < m; i++) sum += x[at + i] * w[o * m + i];
      y[t * n + o] = sum;
    }
    if (bias) for (let i = 0; i < n; i++) y[t * n + i] += bias.data[i];
  }
}

// sum = x + y, row by row.
function add(sum, x, y, width, from, to) {
  for (let i = from * width; i < to * width; i++) sum[i] = x[i] + y[i];
}

// Each stretch of `width` values is normalised by itself: a position, or a head of it.
const norms = {
  none: (y, x, { width }, from, to) => y.set(x.subarray(from * width, to * width), from * width),
  rms: (y, x, { width, eps, gain }, from, to) => {
    for (let at = from * width; at < to * width; at += width) {
      let squares = 0;
      for (let i = 0; i < width; i++) squares += x[at + i] * x[at + i];
      const factor = 1 / Math.sqrt(squares / width + eps);
      for (let i = 0; i < width; i++) y[at + i] = x[at + i] * factor * gain.data[i];
    }
  },
  layer: (y, x, { width, eps, gain, bias }, from, to) => {
    for (let at = from * width; at < to * width; at += width) {
      let [mean, squares] = [0, 0];
      for (let i = 0; i < width; i++) mean += x[at + i] / width;
      for (let i = 0; i < width; i++) squares += (x[at + i] - mean) ** 2;
      const factor = 1 / Math.sqrt(squares / width + eps);
      for (let i = 0; i < width; i++) y[at + i] = (x[at + i] - mean) * factor * gain.data[i] + (bias ? bias.data[i] : 0);
    }
  },
};

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// The error function, by its series near zero and by a continued fraction elsewhere.
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let [term, sum] = [x, x];
    for (let n = 1; Math.abs(term) > 1e-16 * Math.abs(sum); n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = (n / 2) / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / (Math.sqrt(Math.PI) * (size + fraction)));
}

const activations = {
  relu: (x) => Math.max(0, x),
  relu2: (x) => Math.max(0, x) ** 2,
  gelu: (x) => 0.5 * x * (1 + Math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
  gelu_exact: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  silu: (x) => x * sigmoid(x),
};

// log Σ exp of a stretch of values.
function logSumExp(values, at, count) {
  let [most, sum] = [-Infinity, 0];
  for (let i = at; i < at + count; i++) if (values[i] > most) most = values[i];
  if (most === -Infinity) return most;
  for (let i = at; i < at + count; i++) sum += Math.exp(values[i] - most);
  return most + Math.log(sum);
}
