// All heads of all layers as small maps; the chosen one large, as a map, over the text or as arcs.
function headGrid(data, heads, size, choose) {
  const [layers, count] = [data.layers.length, heads.length / data.layers.length];
  const thumbs = heads.map((_, i) => {
    const name = `${label(data.layers[Math.floor(i / count)])}, head ${(i % count) + 1}`;
    const style = `width:${size}px;height:${size}px`;
    return el("button", { class: "thumb", type: "button", "aria-label": name, style, click: () => choose(i) });
  });
  const style = `grid-template-columns: auto repeat(${count}, ${size}px)`;
  const grid = el("div", { class: "heads", role: "group", "aria-label": "heads", style });
  grid.append(el("span"), ...Array.from({ length: count }, (_, h) => el("span", { class: "head" }, `${h + 1}`)));
  for (let l = 0; l < layers; l++)
    grid.append(el("span", {}, label(data.layers[l])), ...thumbs.slice(l * count, (l + 1) * count));
  const small = heads.map((matrix) => shrink(matrix.overview ?? matrix, size));
  onWidth(grid, () => {
    const scale = scaleOf("sequential", [0, 1], true);
    thumbs.forEach((thumb, i) => thumb.replaceChildren(matrixImage(small[i], scale)));
  });
  rove(grid, thumbs, (thumb, dx, dy) => thumbs[thumbs.indexOf(thumb) + dx + dy * count]);
  return { grid, thumbs };
}

// Weights are packed, or matrices by head where a script computes them; `changed` hears of what the reader chooses.
renderers.attention = (data) => {
  const stored = data.weights.tiles || data.weights.matrices ? null : unpack(data.weights);
  const [layers, count, rows, columns] = data.weights.shape;
  const split = (array) => Array.from({ length: layers * count }, (_, i) => matrixOf(array, i * rows * columns));
  const heads = data.weights.matrices ?? (stored ? split(stored) : sparseHeads(data.weights));
  const scores = data.scores && split(unpack(data.scores));
  const [tokens, sources] = [data.tokens.map((t) => visible(t)), data.sources.map((t) => visible(t))];
  const one = rows === columns && data.tokens.every((token, i) => token === data.sources[i]); // a text that looks at itself
  const detail = el("div", { class: "detail" });
  let [chosen, mode] = [data.chosen[0] * count + data.chosen[1], data.mode ?? (Math.max(rows, columns) > ZOOMED ? "text" : "map")];
  let pinned = [0, rows - 1]; // the token of the text view, kept when another head is chosen

  const show = () => {
    const matrix = heads[chosen];
    const button = (view) =>
      el("button", { type: "button", "aria-pressed": String(mode === view), click: () => set(view) }, view);
    const set = (name) => {
      mode = name;
      show();
      detail.querySelector(".toggle [aria-pressed=true]").focus();
    };
    data.changed?.({ chosen: [Math.floor(chosen / count), chosen % count], mode });
    const name = `${label(data.layers[Math.floor(chosen / count)])}, head ${(chosen % count) + 1}`;
    thumbs.forEach((thumb, i) => thumb.setAttribute("aria-pressed", String(i === chosen)));
    const reading = (what, of) => (r, c) =>
      [`${what} ${exactness(of, r, c)}`, `${tokens[r]} (${r + 1})`, `looks at ${sources[c]} (${c + 1})`];
    const shared = { rows: tokens, columns: sources };
    const weighed = () => el("div", {},
      scores ? el("h5", {}, "weights: after the softmax") : null,
      mapView(scores ? unmasked(matrix, scores[chosen]) : matrix, {
        ...shared, lines: reading("weight", matrix), scale: () => scaleOf("sequential", [0, 1], true),
        values: scores ? weightInCell : null, pooled: true, overview: matrix.overview,
        describe: `attention weights of ${name}; arrow keys read them`,
      }),
      colourBar("sequential", 0, 1, "weight"));
    const scored = (of) => {
      const [low, high] = extent(of);
      const reach = Math.max(Math.abs(low), Math.abs(high));
      const [what, domain] = [label(data.score_name), [-reach, reach]];
      return el("div", {},
        el("h5", {}, `${what}: before the softmax`),
        mapView(of, {
          ...shared, lines: reading(what, of), scale: () => scaleOf("diverging", domain),
          values: (score) => (Math.round(10 * score) / 10 || 0).toFixed(1).replace("-", "−"), // no −0.0
          describe: `scores of ${name}; arrow keys read them`,
        }),
        colourBar("diverging", ...domain, what));
    };
    const map = () => [
      el("div", { class: scores ? "beside" : null }, scores ? scored(scores[chosen]) : null, weighed()),
      el("p", { class: "hint" },
        "Rows look, columns are looked at. The colour of weights follows their square root, so that small ones show."),
    ];
    const text = () => [textMap(matrix, { tokens: data.tokens, sources: data.sources, one, pinned, pin: (place) => (pinned = place) })];
    const views = { map, text, arcs: () => [arcsView(matrix, tokens, sources)] };
    detail.replaceChildren(
      el("div", { class: "toolbar" }, el("h4", {}, name),
        el("span", { class: "toggle", role: "group", "aria-label": "view" }, ...Object.keys(views).map(button)),
        el("span", { class: "fact" }, `mean entropy ${format(data.entropies[chosen], 3)} bits`)),
      ...views[mode]());
  };
  const size = count > 12 ? 34 : count > 6 ? 44 : 58;
  const { grid, thumbs } = headGrid(data, heads, size, (i) => {
    chosen = i;
    show();
  });
  show();
  const note = stored
    ? "Weights are stored in 8 bits of their square root; the read-out gives the interval."
    : `Of each row the ${data.weights.values?.shape[3]} largest weights are stored, and of the rest the greatest of every tile: the read-out says “at most”.`;
  const exact = data.weights.matrices || (stored && !stored.bits);
  return [heading(data.title), el("div", { class: "split" }, grid, detail), exact ? null : el("p", { class: "hint" }, note)];
};
