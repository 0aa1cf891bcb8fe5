// Two texts, and ribbons from each token of the second to those of the first that it comes from, as wide as
// the weight. Beside each other where they fit into a line, else below each other.
const [RIBBON_GAP, RIBBON_HEIGHT, RIBBON_ROW, WIDEST_RIBBON] = [14, 110, 26, 12];
const RIBBON_FONT = "14px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const LEAST_RIBBON = 0.08; // weight of a ribbon that is drawn

// The middle of every token in a line of this width, or null where they do not fit.
function placeInLine(context, texts, width) {
  context.font = RIBBON_FONT;
  const sizes = texts.map((text) => context.measureText(text).width + RIBBON_GAP);
  const total = sizes.reduce((a, b) => a + b, 0);
  if (total > width) return null;
  let left = 0;
  return sizes.map((size) => (left += size) - size / 2);
}

renderers.ribbons = (data) => {
  const weights = matrixOf(unpack(data.weights));
  const texts = [data.source.map((t) => visible(t)), data.target.map((t) => visible(t))];
  const lines = [];
  for (let t = 0; t < weights.rows; t++)
    for (let s = 0; s < weights.columns; s++) if (weights.get(t, s) >= LEAST_RIBBON) lines.push([t, s, weights.get(t, s)]);
  const chart = el("div");
  const ends = (side, i) => lines.filter(([t, s]) => (side ? t : s) === i);
  const words = (side, i) => {
    const linked = ends(side, i).sort((a, b) => b[2] - a[2]).slice(0, 5);
    const named = linked.map(([t, s, weight]) => `${texts[side ? 0 : 1][side ? s : t]} ${percent(weight)}`);
    return [`${texts[side][i]} (${i + 1})`, `${side ? "comes from" : "goes to"}: ${named.join(", ") || "nothing in particular"}`];
  };
  const draw = (width) => {
    const context = document.createElement("canvas").getContext("2d");
    const placed = texts.map((line) => placeInLine(context, line, width));
    const across = placed.every(Boolean);
    const column = Math.min(160, (width - 90) / 2); // of names, where the texts stand below each other
    const at = (side, i) => (across ? [placed[side][i], side ? RIBBON_HEIGHT + 24 : 22] : [side ? width - column : column, (i + 0.7) * RIBBON_ROW]);
    const longest = Math.max(texts[0].length, texts[1].length);
    const height = across ? RIBBON_HEIGHT + 46 : longest * RIBBON_ROW + 10;
    const paths = lines.map(([t, s, weight]) => {
      const [[x0, y0], [x1, y1]] = [at(0, s), at(1, t)];
      const [from, to] = across ? [[x0, y0 + 7], [x1, y1 - 16]] : [[x0 + 6, y0 - 4], [x1 - 6, y1 - 4]];
      const middle = across ? (from[1] + to[1]) / 2 : (from[0] + to[0]) / 2;
      const bend = across ? `${from[0]} ${middle} ${to[0]} ${middle}` : `${middle} ${from[1]} ${middle} ${to[1]}`;
      return svg("path", { class: "ribbon", d: `M${from.join(" ")} C${bend} ${to.join(" ")}`, "stroke-width": Math.max(1, WIDEST_RIBBON * weight), style: `opacity:${0.15 + 0.6 * weight}` });
    });
    const light = (side, i) => paths.forEach((path, k) => path.classList.toggle("faded", side >= 0 && lines[k][side ? 0 : 1] !== i));
    const tokens = texts.map((line, side) => line.map((text, i) => {
      const [x, y] = at(side, i);
      const anchor = across ? "middle" : side ? "start" : "end";
      const shown = across ? text : clip(context, text, column - 4);
      const node = svg("text", { class: "word", x, y, "text-anchor": anchor, role: "listitem", "aria-label": words(side, i).join(" ") }, shown);
      node.addEventListener("pointerenter", () => light(side, i));
      node.addEventListener("focus", () => light(side, i));
      for (const event of ["pointerleave", "blur"]) node.addEventListener(event, () => light(-1));
      return withTip(node, () => words(side, i));
    }));
    const drawing = svg("svg", { width, height, role: "list", "aria-label": label(data.title) || "links between two texts" }, ...paths, ...tokens.flat());
    rove(drawing, tokens.flat(), (token, dx, dy) => {
      const side = tokens[0].includes(token) ? 0 : 1;
      const [along, over] = across ? [dx, dy] : [dy, dx];
      const other = tokens[clamp(side + over, 0, 1)];
      return other[clamp(tokens[side].indexOf(token) + along, 0, other.length - 1)];
    });
    chart.replaceChildren(drawing);
  };
  onWidth(chart, draw);
  const name = (side) => el("p", { class: "hint" }, side);
  return [heading(data.title), chart, name(`${label(data.names[0])} and ${label(data.names[1])}; a ribbon is as wide as its weight, and weights below ${percent(LEAST_RIBBON)} are left out.`)];
};
