// Points in the plane, by group or by value; the one nearest to the pointer is read out, and handed to
// `pick` by a click or by Enter, where there is one. Arrow keys move from point to point.
const REACH = 24; // pixels from a point within which it is meant
const MANY_GROUPS = 7; // more of them have shapes, too, and their names among the points

// A point of a group: a disc, and other shapes where colours come round again.
function dotOf(x, y, radius, shape) {
  if (shape % 4 === 0) return svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: radius });
  const r = radius * [1, 0.9, 1.2, 1.15][shape % 4];
  const d = ["", `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`, `M${x} ${y - r}L${x + r} ${y + 0.8 * r}H${x - r}Z`,
    `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`][shape % 4];
  return svg("path", { d });
}

renderers.scatter = (data, pick = null) => {
  const [xs, ys, values] = [data.x, data.y, data.values].map((list) => list.map(toNumber));
  const names = data.names.map((name) => label(name));
  const marks = new Map(data.marks);
  const colours = list("--series").length - 1; // all but grey
  const many = names.length > MANY_GROUPS;
  const hidden = new Set();
  let at = -1; // the point that the keyboard is at
  const chart = el("div");
  const finite = values.filter(Number.isFinite);
  const domain = [finite.reduce((a, b) => Math.min(a, b), Infinity), finite.reduce((a, b) => Math.max(a, b), -Infinity)];
  const colourOf = () => {
    if (names.length) return (i) => seriesColour(data.groups[i] % colours);
    const scale = finite.length ? scaleOf("sequential", domain) : null;
    return (i) => (scale && Number.isFinite(values[i]) ? rgb(scale(values[i])) : css("--accent"));
  };
  const shapeOf = (i) => (names.length ? Math.floor(data.groups[i] / colours) : 0);
  const swatches = names.map((_, group) => el("i", { class: `point shape-${Math.floor(group / colours) % 4}` }));
  const keys = swatches.map((swatch, group) =>
    el("button", { type: "button", "aria-pressed": "true", click: (event) => {
      hidden.delete(group) || hidden.add(group);
      event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(group)));
      draw(chart.clientWidth);
    } }, swatch, names[group]));
  const words = (i) => [
    marks.has(i) ? label(marks.get(i)) : names.length ? names[data.groups[i]] : `${format(xs[i])}, ${format(ys[i])}`,
    marks.has(i) && names.length ? names[data.groups[i]] : null,
    values.length ? `${format(values[i])} ${label(data.unit)}` : null,
    data.texts.length ? label(data.texts[i].slice(0, 160)) : null,
  ].filter(Boolean);
  const spread = (list) => [list.reduce((a, b) => Math.min(a, b), Infinity), list.reduce((a, b) => Math.max(a, b), -Infinity)];
  const draw = (room) => {
    const width = data.diagonal ? Math.min(room, 560) : room; // both axes have one unit
    const height = clamp(width * 0.78, 260, 460);
    const colour = colourOf();
    swatches.forEach((swatch, group) => (swatch.style.background = seriesColour(group % colours)));
    const both = data.diagonal ? spread([...xs, ...ys]) : null;
    const corner = (axis) => data.outline.map((point) => point[axis]);
    const reach = [[...xs, ...corner(0)], [...ys, ...corner(1)]].map(spread);
    const frame = frameOf({ x: padded(both ?? reach[0], false, 0.05), y: padded(both ?? reach[1], false, data.outline.length ? 0.1 : 0.05) }, data, width, height);
    const shown = xs.map((_, i) => i).filter((i) => marks.has(i) || !hidden.has(data.groups[i]));
    shown.sort((a, b) => marks.has(a) - marks.has(b)); // what stands out is drawn last
    const dots = shown.map((i) => {
      const dot = dotOf(frame.x(xs[i]), frame.y(ys[i]), marks.has(i) ? 6 : 3.4, shapeOf(i));
      return fill(dot, { class: marks.has(i) ? "dot marked" : "dot", style: `fill: ${colour(i)}` }, []);
    });
    const boxes = []; // a name that would cover another is left to the tip; the last mark has its own first
    const told = data.marks.toReversed().flatMap(([i, text]) => {
      const [name, left, y] = [label(text), frame.x(xs[i]) > width / 2, frame.y(ys[i])];
      const wide = 8 * name.length + 12;
      const from = frame.x(xs[i]) + (left ? -wide : 0);
      if (boxes.some(([a, b, c]) => from < b && from + wide > a && Math.abs(y - c) < 13)) return [];
      boxes.push([from, from + wide, y]);
      return svg("text", { class: "dot-name", x: frame.x(xs[i]) + (left ? -10 : 10), y: y + 4, "text-anchor": left ? "end" : "start" }, name);
    });
    const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
    const direct = !many ? [] : names.flatMap((name, group) => {
      const mine = shown.filter((i) => data.groups[i] === group);
      if (!mine.length) return [];
      const at = { x: middle(mine.map((i) => frame.x(xs[i]))), y: middle(mine.map((i) => frame.y(ys[i]))) + 4 };
      return svg("text", { class: "group-name", ...at, "text-anchor": "middle" }, name.slice(0, 18));
    });
    const line = both ? [svg("line", { class: "cross", x1: frame.x(both[0]), y1: frame.y(both[0]), x2: frame.x(both[1]), y2: frame.y(both[1]) })] : [];
    const corners = data.outline.map(([x, y, name]) => ({ x: frame.x(x), y: frame.y(y), name: label(name) }));
    const outline = !corners.length ? [] : [
      svg("path", { class: "cross", fill: "none", d: `${corners.map(({ x, y }, i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("")}Z` }),
      ...corners.map(({ x, y, name }) => svg("text", { class: "group-name", x, y: y + (y < height / 2 ? -8 : 16), "text-anchor": "middle" }, name)),
    ];
    const ring = svg("circle", { class: "dot-cursor", r: 9, visibility: "hidden" });
    const describe = `${label(data.title) || "points"}, ${xs.length} of them; arrow keys read them`;
    const drawing = svg("svg", { width, height, role: "img", tabindex: 0, "aria-label": describe },
      ...frame.parts, ...line, ...outline, ...dots, ...direct, ...told, ring);
    const meant = (event) => {
      const edge = chart.getBoundingClientRect();
      const far = (i) => Math.hypot(frame.x(xs[i]) - event.clientX + edge.left, frame.y(ys[i]) - event.clientY + edge.top);
      const i = shown.reduce((best, i) => (best < 0 || far(i) < far(best) ? i : best), -1);
      return i >= 0 && far(i) < REACH ? i : -1;
    };
    drawing.addEventListener("pointermove", (event) => {
      const i = meant(event);
      i >= 0 ? showTip(words(i), event.clientX, event.clientY) : hideTip();
    });
    if (pick) drawing.addEventListener("click", (event) => meant(event) >= 0 && pick(meant(event)));
    drawing.addEventListener("pointerleave", hideTip);
    // The nearest point in the direction of an arrow: what lies aside counts twice.
    const beside = ([dx, dy]) => {
      const ahead = (i) => dx * (frame.x(xs[i]) - frame.x(xs[at])) + dy * (frame.y(ys[i]) - frame.y(ys[at]));
      const aside = (i) => Math.abs(dy * (frame.x(xs[i]) - frame.x(xs[at]))) + Math.abs(dx * (frame.y(ys[i]) - frame.y(ys[at])));
      const cost = (i) => ahead(i) + 2 * aside(i);
      return shown.filter((i) => ahead(i) > 0.5).reduce((best, i) => (best < 0 || cost(i) < cost(best) ? i : best), -1);
    };
    drawing.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && pick && shown.includes(at)) return pick(at);
      if (!(event.key in ARROWS) || !shown.length) return;
      event.preventDefault();
      const next = shown.includes(at) ? beside(ARROWS[event.key]) : shown[shown.length - 1];
      if (next >= 0) at = next;
      fill(ring, { cx: frame.x(xs[at]), cy: frame.y(ys[at]), visibility: "visible" }, []);
      const edge = ring.getBoundingClientRect();
      showTip(words(at), edge.right, edge.bottom);
    });
    drawing.addEventListener("blur", () => {
      ring.setAttribute("visibility", "hidden");
      hideTip();
    });
    chart.replaceChildren(drawing);
  };
  onWidth(chart, draw);
  const key = names.length ? el("div", { class: "keys" }, ...keys) : null;
  return [heading(data.title), key, chart, finite.length ? colourBar("sequential", ...domain, label(data.unit)) : null];
};
