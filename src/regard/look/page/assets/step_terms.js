// How one number of a stage follows from the numbers before it. `operations.py` computes whole arrays by the same
// formulas. A term is a product: {refs: [[input, place], …], factor, words}; a linear operation is a sum of terms,
// any other a form: {refs, lines, value}. Places count through an array row by row.
const range = (n) => Array.from({ length: n }, (_, i) => i);
const sum = (values) => values.reduce((a, b) => a + b, 0);
const widthOf = (stage) => stage.shape[stage.shape.length - 1];
const sizeOf = (stage) => stage.shape.reduce((a, b) => a * b, 1);
const valuesOf = (stage) => range(sizeOf(stage)).map(stage.get);
// A number with five digits after the point: more than anyone reads, enough to compare.
function exactly(value) {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return format(value);
  const text = size && (size < 1e-4 || size >= 1e7) ? value.toExponential(5) : Number.isInteger(value) ? String(value) : value.toFixed(5);
  return text.replace(/-/g, "−");
}

const one = (...refs) => ({ refs, factor: 1 });
const LINEAR = {
  gather: (s, i) => [one([0, s.how.row * widthOf(s) + i])],
  dot: (s, i, [x, , bias]) => {
    const [n, m] = [widthOf(x), widthOf(s)];
    const [r, c] = [Math.floor(i / m), i % m];
    return [...range(n).map((k) => one([0, r * n + k], [1, c * n + k])), ...(bias ? [one([2, c])] : [])];
  },
  row_dots: (s, i, [x]) => range(widthOf(x)).map((k) => one([0, i * widthOf(x) + k], [1, k])),
  mix: (s, i, [w]) => range(sizeOf(w)).map((j) => one([0, j], [1, j * widthOf(s) + i])),
  columns: (s, i, [a]) => range(a.shape[0]).map((j) => one([0, j * widthOf(s) + i], [1, j * widthOf(s) + i])),
  add: (s, i, inputs) => inputs.map((x, k) => one([k, i % sizeOf(x)])),
  subtract: (s, i, inputs) => [one([0, i % sizeOf(inputs[0])]), { refs: [[1, i % sizeOf(inputs[1])]], factor: -1, words: "−1" }],
  multiply: (s, i, inputs) => [one(...inputs.map((x, k) => [k, i % sizeOf(x)]))],
  products: (s, i) => [one([0, i], [1, i]), one([2, i], [3, i])],
  scale: (s, i) => [{ refs: [[0, i]], factor: s.how.factor, words: s.how.words }],
  complement: (s, i) => [{ refs: [], factor: 1, words: "1" }, { refs: [[0, i]], factor: -1, words: "−1" }],
  part: (s, i, [x]) => [one([0, Math.floor(i / widthOf(s)) * widthOf(x) + s.how.start + (i % widthOf(s))])],
  join: (s, i, inputs) => {
    let k = 0;
    for (; i >= sizeOf(inputs[k]); k++) i -= sizeOf(inputs[k]);
    return [one([k, i])];
  },
  entries: (s, i) => (s.how.places[i] < 0 ? [{ refs: [], factor: 0, words: "nothing" }] : [one([0, s.how.places[i]])]),
  stack: (s, i) => [one([Math.floor(i / widthOf(s)), i % widthOf(s)])],
  sum_rows: (s, i, [x, bias]) => [...range(x.shape[0]).map((r) => one([0, r * widthOf(s) + i])), ...(bias ? [one([1, i])] : [])],
  mean_rows: (s, i, [x]) => range(x.shape[0]).map((r) => ({ refs: [[0, r * widthOf(s) + i]], factor: 1 / x.shape[0], words: `1 / ${x.shape[0]}` })),
  combine: (s, i, inputs) => inputs.map((x, k) => ({ refs: [[k, i % sizeOf(x)]], factor: s.how.factors[k], words: s.how.words[k] })),
  rescale: (s, i) => [one([0, i], [1, 0]), one([2, 0])],
  differences: (s, i) => [one([0, i + 1]), { refs: [[0, i]], factor: -1, words: "−1" }],
  total: (s, i, [x]) => [...range(sizeOf(x)).map((k) => one([0, k])), one([1, 0])],
  moving_average: (s, i, [x]) => {
    const [width, last] = [s.how.width, sizeOf(x) - 1];
    return range(width).map((k) => ({ refs: [[0, clamp(i + k - (width - 1) / 2, 0, last)]], factor: 1 / width, words: `1 / ${width}` }));
  },
  rotate: (s, i) => {
    const n = widthOf(s);
    return [one([0, i], [1, i]), one([0, (i + n - Math.floor(n / 2)) % n], [2, i])];
  },
  restore: (s, i) => [{ refs: [[0, i]], factor: s.how.factor, words: "deviation" }, { refs: [], factor: s.how.shift, words: "mean" }],
  temper: (s, i) => [{ refs: [[0, i]], factor: 1 / s.how.temperature, words: "1 / T" }],
};

const sigmoidOf = (x) => 1 / (1 + Math.exp(-x));
// The error function by its series, or by a continued fraction where that is short.
function erf(x) {
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  let [term, total] = [z, z];
  for (let n = 1; Math.abs(term) > 1e-17 * total && n < 200; n++) {
    term *= (-z * z) / n;
    total += term / (2 * n + 1);
  }
  return (Math.sign(x) * 2 * total) / Math.sqrt(Math.PI);
}
const FUNCTIONS = {
  relu: (x) => Math.max(0, x),
  relu2: (x) => Math.max(0, x) ** 2,
  gelu: (x) => x * sigmoidOf(1.5957691216057308 * (x + 0.044715 * x ** 3)),
  gelu_exact: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  silu: (x) => x * sigmoidOf(x),
  sigmoid: sigmoidOf,
  tanh: Math.tanh,
  exp: Math.exp,
  log: Math.log,
  sqrt: Math.sqrt,
  negative: (x) => -x,
  present: (x) => (x > 0 ? 1 : 0),
  cube: (x) => x ** 3,
  fourth: (x) => x ** 4,
  size: Math.abs,
  below_zero: (x) => (x < 0 ? 1 : 0),
  log_count: (x) => 1 + Math.log(x),
};

// The places of the weights of 2 in a filter of nine: 0 1 2, 0 1 3, … 6 7 8.
const THREES = range(9).flatMap((a) => range(9).flatMap((b) => range(9).map((c) => [a, b, c]))).filter(([a, b, c]) => a < b && b < c);

const same = (i) => [[0, i]];
const FORMS = {
  mask: (s, i, [x, allowed]) => {
    const open = allowed.get(i) > 0;
    return { refs: [[0, i], [1, i]], lines: [open ? "the mask is 1: the score stays" : "the mask is 0: −∞"], value: open ? x.get(i) : -Infinity };
  },
  softmax: (s, i, [x]) => {
    const all = valuesOf(x);
    const top = all.reduce((a, b) => Math.max(a, b), -Infinity);
    const [power, total] = [Math.exp(x.get(i) - top), sum(all.map((v) => Math.exp(v - top)))];
    return {
      refs: same(i), value: power / total,
      lines: [`exp(${exactly(x.get(i))} − ${exactly(top)}) = ${exactly(power)}; the largest is subtracted, which changes no weight`,
        `the sum of all ${all.length} such powers is ${exactly(total)}`, `${exactly(power)} / ${exactly(total)}`],
    };
  },
  normalize: (s, i, [x]) => {
    const total = sum(valuesOf(x));
    return { refs: same(i), lines: [`the sum is ${exactly(total)}`, `${exactly(x.get(i))} / ${exactly(total)}`], value: x.get(i) / total };
  },
  log_softmax: (s, i, [x]) => {
    const all = valuesOf(x);
    const top = all.reduce((a, b) => Math.max(a, b), -Infinity);
    const total = top + Math.log(sum(all.map((v) => Math.exp(v - top))));
    return { refs: same(i), lines: [`ln of the sum of all ${all.length} powers is ${exactly(total)}`, `${exactly(x.get(i))} − ${exactly(total)}`], value: x.get(i) - total };
  },
  mean: (s, i, [x]) => {
    const known = valuesOf(x).filter((v) => !Number.isNaN(v));
    const value = sum(known) / Math.max(1, known.length);
    return { refs: range(sizeOf(x)).map((k) => [0, k]), lines: [`the sum of ${known.length} known numbers is ${exactly(sum(known))}`, `${exactly(sum(known))} / ${known.length}`], value };
  },
  deviation: (s, i, [x, mean]) => {
    const known = valuesOf(x).filter((v) => !Number.isNaN(v));
    const variance = sum(known.map((v) => (v - mean.get(0)) ** 2)) / Math.max(1, known.length);
    return { refs: [[1, 0], ...range(sizeOf(x)).map((k) => [0, k])], lines: [`mean((x − mean)²) = ${exactly(variance)}, of ${known.length} known numbers`, "√(that + ε)"], value: Math.sqrt(variance + s.how.eps) };
  },
  z_score: (s, i, [x, mean, deviation]) => ({
    refs: [[0, i], [1, 0], [2, 0]], value: (x.get(i) - mean.get(0)) / deviation.get(0),
    lines: [`(${exactly(x.get(i))} − ${exactly(mean.get(0))}) / ${exactly(deviation.get(0))}`],
  }),
  sort: (s, i, [x]) => {
    const at = range(sizeOf(x)).sort((a, b) => x.get(a) - x.get(b) || a - b)[i];
    return { refs: [[0, at]], lines: [`${i + 1} of ${sizeOf(x)}, the least first: that of ${x.place(at)}`], value: x.get(at) };
  },
  autocorrelations: (s, i, [x]) => {
    const [lag, all] = [s.how.lags[i], valuesOf(x)];
    const power = Math.max(1e-9, sum(all.map((v) => v * v)));
    const products = sum(all.slice(lag).map((v, t) => v * all[t]));
    return {
      refs: range(sizeOf(x)).map((t) => [0, t]), value: products / power,
      lines: [`the sum of products with the number ${lag} before is ${exactly(products)}`, `divided by the sum of squares, ${exactly(power)}`],
    };
  },
  bands: (s, i, [x]) => {
    const inside = range(s.how.edges[i + 1] - s.how.edges[i]).map((k) => k + s.how.edges[i] - 1);
    const best = inside.reduce((a, b) => (x.get(b) > x.get(a) ? b : a));
    return { refs: [[0, best]], lines: [`the largest of ${inside.length}, from number ${s.how.edges[i]} on, is number ${best + 1}`], value: x.get(best) };
  },
  row_norms: (s, i, [x]) => {
    const refs = range(widthOf(x)).map((k) => [0, i * widthOf(x) + k]);
    const total = sum(refs.map(([, at]) => x.get(at) ** 2));
    return { refs, lines: [`the sum of ${refs.length} squares is ${exactly(total)}`, `√${exactly(total)}`], value: Math.sqrt(total) };
  },
  column_deviations: (s, i, [x]) => {
    const refs = range(x.shape[0]).map((r) => [0, r * widthOf(x) + i]);
    const all = refs.map(([, at]) => x.get(at));
    const mean = sum(all) / all.length;
    const variance = sum(all.map((v) => (v - mean) ** 2)) / all.length;
    return { refs, lines: [`of ${all.length} numbers the mean is ${exactly(mean)}`, `the mean of the squares around it is ${exactly(variance)}`], value: Math.sqrt(variance) };
  },
  pair_distances: (s, i, [x]) => {
    const n = widthOf(x);
    const [r, c] = [Math.floor(i / widthOf(s)), i % widthOf(s)];
    const value = Math.hypot(...range(n).map((k) => x.get(r * n + k) - x.get(c * n + k)));
    return { refs: range(n).flatMap((k) => [[0, r * n + k], [0, c * n + k]]), lines: [`between ${x.rowName(r)} and ${x.rowName(c)}: the root of the sum of ${n} squares`], value };
  },
  histogram: (s, i, [x]) => {
    const { bins, largest } = s.how;
    const inside = range(sizeOf(x)).filter((k) => clamp(Math.trunc((x.get(k) / largest) * bins), 0, bins - 1) === i);
    const last = i === bins - 1 ? "" : ` and below ${exactly(((i + 1) * largest) / bins)}`;
    return { refs: inside.map((k) => [0, k]), lines: [`${inside.length} of ${sizeOf(x)} numbers are from ${exactly((i * largest) / bins)} on${last}`], value: inside.length / sizeOf(x) };
  },
  coulomb: (s, i, [z, gaps]) => {
    const [r, c] = [Math.floor(i / widthOf(s)), i % widthOf(s)];
    if (r === c) return { refs: [[0, r]], lines: [`${exactly(z.get(r))}^2.4 / 2`], value: z.get(r) ** 2.4 / 2 };
    return { refs: [[0, r], [0, c], [1, i]], lines: [`${exactly(z.get(r))} · ${exactly(z.get(c))} / ${exactly(gaps.get(i))}`], value: (z.get(r) * z.get(c)) / Math.max(gaps.get(i), 1e-3) };
  },
  absolute_distance: (s, i, [x, rows]) => {
    const n = sizeOf(x);
    const value = sum(range(n).map((k) => Math.abs(x.get(k) - rows.get(i * n + k))));
    return { refs: range(n).flatMap((k) => [[0, k], [1, i * n + k]]), lines: [`the sum of ${n} absolute differences`], value };
  },
  exceeding: (s, i, [x, thresholds, chosen]) => {
    const [count, width] = [THREES.length, widthOf(x)];
    const { dilations, margin } = s.how;
    const levels = sizeOf(thresholds) / count / dilations.length;
    const [filter, number] = [i % count, Math.floor(i / count / levels)];
    const columns = range(width).filter((c) => chosen.get((number * count + filter) * width + c) > 0);
    const at = (t) => (t < 0 || t >= x.shape[0] ? 0 : sum(columns.map((c) => x.get(t * width + c))));
    const weights = range(9).map((k) => (THREES[filter].includes(k) ? 2 : -1));
    const above = range(x.shape[0]).filter((t) => sum(weights.map((w, k) => w * at(t + (k - 4) * dilations[number]))) > thresholds.get(i) + margin);
    return {
      refs: [[1, i], ...above.flatMap((t) => columns.map((c) => [0, t * width + c]))], value: above.length / x.shape[0],
      lines: [`the weights ${weights.join(" ").replace(/-/g, "−")} at every ${dilations[number] === 1 ? "step" : `${dilations[number]} steps`}, of ${columns.map((c) => x.columnName(c)).join(" + ")}`,
        `at ${above.length} of ${x.shape[0]} steps the sum is above ${exactly(thresholds.get(i))}; they are outlined`],
    };
  },
  leaves: (s, i, [x, nodes]) => {
    const [refs, lines, size] = [[], [], sizeOf(x)];
    let node = s.how.roots[i];
    for (let at = (k) => nodes.get(4 * node + k); at(2) !== node && !Number.isNaN(at(2)); ) {
      const [feature, low] = [at(0) % size, at(0) < size];
      const value = x.get(feature);
      const above = Number.isNaN(value) ? !low : value > at(1);
      lines.push(`${x.columnName(feature)} = ${Number.isNaN(value) ? "missing" : exactly(value)} ${above ? ">" : "≤"} ${exactly(at(1))}: ${above ? "right" : "left"}`);
      refs.push([0, feature]);
      node = at(2) + (above ? 1 : 0);
    }
    return { refs: [...refs, [1, 4 * node + 3]], lines: [...lines, `the leaf says ${exactly(nodes.get(4 * node + 3))}`], value: nodes.get(4 * node + 3) };
  },
  occurrences: (s, i, [ids]) => {
    const [ngram, first, stop] = s.how.ngrams[i];
    const places = range(stop - first).map((k) => k + first).filter((at) => ngram.every((id, k) => ids.get(at + k) === id));
    return { refs: places.flatMap((at) => ngram.map((_, k) => [0, at + k])), lines: [`${s.columnName(i)} stands at ${places.length} ${places.length === 1 ? "place" : "places"}: from token ${places.map((at) => at + 1).join(", ")}`], value: places.length };
  },
  rms: (s, i, [x, gain]) => {
    const mean = sum(valuesOf(x).map((v) => v * v)) / sizeOf(x);
    const root = Math.sqrt(mean + s.how.eps);
    return {
      refs: [[0, i], [1, i]], value: (x.get(i) / root) * gain.get(i),
      lines: [`mean(x²) = ${exactly(mean)}; √(mean + ε) = ${exactly(root)}`, `${exactly(gain.get(i))} · ${exactly(x.get(i))} / ${exactly(root)}`],
    };
  },
  layer_norm: (s, i, [x, gain, bias]) => {
    const all = valuesOf(x);
    const mean = sum(all) / all.length;
    const root = Math.sqrt(sum(all.map((v) => (v - mean) ** 2)) / all.length + s.how.eps);
    const shift = bias ? bias.get(i) : 0;
    return {
      refs: [[0, i], [1, i], ...(bias ? [[2, i]] : [])], value: ((x.get(i) - mean) / root) * gain.get(i) + shift,
      lines: [`mean = ${exactly(mean)}; √(variance + ε) = ${exactly(root)}`,
        `${exactly(gain.get(i))} · (${exactly(x.get(i))} − ${exactly(mean)}) / ${exactly(root)}${bias ? ` + ${exactly(shift)}` : ""}`],
    };
  },
  unit: (s, i, [x]) => {
    const n = widthOf(x);
    const first = Math.floor(i / n) * n;
    const size = Math.hypot(...range(n).map((k) => x.get(first + k)));
    return { refs: same(i), lines: [`the length is ${exactly(size)}`, `${exactly(x.get(i))} / ${exactly(size)}`], value: x.get(i) / size };
  },
  standardize: (s, i, [x, mean, deviation]) => {
    const [m, d] = [i % sizeOf(mean), i % sizeOf(deviation)];
    const refs = [[0, i], [1, m], [2, d]];
    if (Number.isNaN(x.get(i))) return { refs, lines: ["it is missing: 0, the mean"], value: 0 };
    return { refs, lines: [`(${exactly(x.get(i))} − ${exactly(mean.get(m))}) / ${exactly(deviation.get(d))}`], value: (x.get(i) - mean.get(m)) / deviation.get(d) };
  },
  squared_distance: (s, i, [q, keys]) => {
    const n = sizeOf(q);
    const value = sum(range(n).map((k) => (q.get(k) - keys.get(i * n + k)) ** 2));
    return { refs: range(n).flatMap((k) => [[0, k], [1, i * n + k]]), lines: [`the sum of the squares of ${n} differences`], value };
  },
  largest: (s, i, [x]) => {
    const n = widthOf(x);
    const best = range(x.shape[0]).reduce((a, b) => (x.get(b * n + i) > x.get(a * n + i) ? b : a), 0);
    return { refs: [[0, best * n + i]], lines: [`the largest of ${x.shape[0]} is that of ${x.rowName(best)}`], value: x.get(best * n + i) };
  },
  discount: (s, i, [n, paid]) => {
    const [count, total] = [n.get(i), sum(valuesOf(n))];
    const cut = count ? paid.get(Math.min(count, 3) - 1) : 0;
    return { refs: [[0, i], ...(count ? [[1, Math.min(count, 3) - 1]] : [])], lines: [`(${exactly(count)} − ${exactly(cut)}) / ${exactly(total)}`], value: (count - cut) / total };
  },
  apply: (s, i, [x]) => ({ refs: same(i), lines: [`${s.how.words}, of x = ${exactly(x.get(i))}`], value: FUNCTIONS[s.how.function](x.get(i)) }),
  top_k: (s, i, [x]) => kept(s, i, x),
  top_p: (s, i, [x]) => kept(s, i, x),
  draw: (s, i, [x]) => {
    const before = sum(range(i).map(x.get));
    return { refs: same(i), lines: [`${exactly(before)} of all tokens before it, + ${exactly(x.get(i))}`], value: before + x.get(i) };
  },
};
function kept(s, i, x) {
  const total = sum(range(sizeOf(x)).filter((k) => s.get(k) > 0).map(x.get));
  const cut = !(s.get(i) > 0);
  return { refs: same(i), lines: [cut ? "cut: 0" : `kept: ${exactly(x.get(i))} / ${exactly(total)}, the sum of the kept`], value: cut ? 0 : x.get(i) / total };
}

// Terms or a form, with the value that they give; null for what is given.
function explain(stage, i) {
  const { op } = stage.how;
  const value = ({ refs, factor }) => refs.reduce((product, [k, at]) => product * stage.inputs[k].get(at), factor);
  if (op in FORMS) return FORMS[op](stage, i, stage.inputs);
  if (!(op in LINEAR)) return null;
  const terms = LINEAR[op](stage, i, stage.inputs).map((term) => ({ ...term, value: value(term) }));
  // A weight of 0 takes nothing, even of what is not finite.
  return { terms, refs: terms.flatMap((term) => term.refs), value: sum(terms.map((term) => term.value)) };
}

// The stages that follow from temperature, top-K, top-P and a random number, computed again.
const LIVE = {
  temper: ([x], { temperature }) => valuesOf(x).map((z) => z / temperature),
  softmax: ([x]) => softmax(valuesOf(x)),
  top_k: ([x], { topK }) => keepFirst(valuesOf(x), (rank) => rank < topK),
  top_p: ([x], { topP }) => keepFirst(valuesOf(x), (rank, before) => topP >= 1 || before < topP),
  draw: ([x]) => {
    let total = 0;
    return valuesOf(x).map((p) => (total += p));
  },
};
function keepFirst(p, keep) {
  const order = range(p.length).sort((a, b) => p[b] - p[a] || a - b);
  const cut = p.map(() => 0);
  let before = 0;
  order.forEach((i, rank) => {
    if (keep(rank, before)) cut[i] = p[i];
    before += p[i];
  });
  const total = sum(cut);
  return cut.map((v) => v / total);
}
