// The next-symbol distribution under temperature, then top-K, then top-P on what K left, renormalised.
const MOST_BARS = 20;

function softmax(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = scores.map((score) => Math.exp(score - most));
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / total);
}

// order: symbols by falling probability, ties to the earlier; the first `kept` of them survive;
// `tempered` is before any cut, `final` after; `mass` is what the kept hold before renormalising.
function cutDistribution(logits, { temperature, topK, topP }) {
  const tempered = softmax(logits.map((logit) => logit / temperature));
  const order = tempered.map((_, i) => i).sort((a, b) => logits[b] - logits[a] || a - b);
  const most = Math.min(topK, tempered.filter((p) => p > 0).length);
  const total = order.slice(0, most).reduce((sum, i) => sum + tempered[i], 0);
  let [kept, before] = [0, 0];
  while (kept < most && (topP >= 1 || before < topP * total)) before += tempered[order[kept++]];
  const final = tempered.map(() => 0);
  for (const i of order.slice(0, kept)) final[i] = tempered[i] / before;
  return { order, kept, tempered, final, mass: before };
}

function slider(name, range, show, change) {
  const output = el("output", {}, show(range.value));
  const input = el("input", {
    type: "range", min: range.low, max: range.high, step: "any", "data-name": name,
    input: () => {
      const value = change(Number(input.value));
      output.textContent = show(value);
      input.setAttribute("aria-valuetext", show(value));
    },
  });
  input.value = range.at;
  input.setAttribute("aria-valuetext", show(range.value));
  return el("label", {}, el("span", {}, name), output, input);
}

renderers.distribution = (data) => {
  const logits = data.logits.map(toNumber);
  const size = logits.length;
  const state = { temperature: data.temperature, topK: data.top_k, topP: data.top_p };
  const bars = el("div", { class: "bars" });
  const summary = el("p", { class: "kept-line", role: "status" });
  const draw = () => {
    const { order, kept, tempered, final, mass } = cutDistribution(logits, state);
    const changed = kept < tempered.filter((p) => p > 0).length; // else both columns would be the same
    bars.classList.toggle("changed", changed);
    const top = tempered[order[0]] || 1;
    const rows = order.slice(0, MOST_BARS).map((i, rank) => {
      const cut = rank >= kept;
      const [before, after] = [percent(tempered[i]), cut ? "cut" : percent(final[i])];
      const faded = cut ? " cut" : "";
      const bar = el("div", { class: `fill${faded}`, style: `width:${(100 * tempered[i]) / top}%` });
      return [
        el("span", { class: `name${faded}` }, visible(data.tokens[i])),
        withTip(el("div", { class: "track" }, bar), () => [visible(data.tokens[i]), `before the cuts ${before}`, `after ${after}`]),
        changed ? el("span", { class: "number cut" }, before) : null,
        el("span", { class: `number${faded}` }, after),
      ].filter(Boolean);
    });
    const titles = ["", "", "before", "after the cuts"].map((text) => el("span", { class: "title" }, text));
    bars.replaceChildren(...(changed ? titles : []), ...rows.flat());
    const more = size > MOST_BARS ? `; the ${MOST_BARS} most probable are shown` : "";
    if (!changed) return void (summary.textContent = `All ${format(kept)} symbols that may follow${more}.`);
    summary.textContent = `${format(kept)} of ${format(size)} symbols kept, holding ${percent(mass)} of the mass${more}.`;
  };
  const set = (name, read) => (raw) => {
    state[name] = read(raw);
    draw();
    data.changed?.(state);
    return state[name];
  };
  // Top-K moves on a logarithmic slider, so that small K are easy to reach in a large vocabulary.
  const toK = (raw) => clamp(Math.round(size ** raw), 1, size);
  const fromK = (k) => (size > 1 ? Math.log(k) / Math.log(size) : 1);
  const { temperature, topK, topP } = state;
  const ranges = {
    temperature: { low: Math.min(0.05, temperature), high: Math.max(3, temperature), at: temperature, value: temperature },
    topK: { low: 0, high: 1, at: fromK(topK), value: topK },
    topP: { low: Math.min(0.01, topP), high: 1, at: topP, value: topP },
  };
  const sliders = el("div", { class: "sliders" },
    slider("temperature", ranges.temperature, (value) => format(value, 3), set("temperature", Number)),
    slider("top-K", ranges.topK, (value) => (value >= size ? "all" : format(value)), set("topK", toK)),
    slider("top-P", ranges.topP, (value) => (value >= 1 ? "all" : format(value, 3)), set("topP", Number)));
  draw();
  return [heading(data.title), sliders, bars, summary,
    el("p", { class: "hint" },
      "Order: temperature, then top-K, then top-P on what is left; the symbol that crosses P is kept.")];
};
