// Points in the plane, by group or by value; the one nearest to the pointer is read out, and handed to
// `pick` by a click, where there is one.
const REACH = 24; // pixels from a point within which it is meant

renderers.scatter = (data, pick = null) => {
  const [xs, ys, values] = [data.x, data.y, data.values].map((list) => list.map(toNumber));
  const names = data.names.map((name) => label(name));
  const marks = new Map(data.marks);
  const colours = list("--series").length - 1; // the last one, grey, is for all the rarer groups
  const hidden = new Set();
  const chart = el("div");
  const finite = values.filter(Number.isFinite);
  const domain = [finite.reduce((a, b) => Math.min(a, b), Infinity), finite.reduce((a, b) => Math.max(a, b), -Infinity)];
  const colourOf = () => {
    if (names.length) return (i) => seriesColour(Math.min(data.groups[i], colours));
    const scale = finite.length ? scaleOf("sequential", domain) : null;
    return (i) => (scale && Number.isFinite(values[i]) ? rgb(scale(values[i])) : css("--accent"));
  };
  const swatches = names.slice(0, colours + 1).map(() => el("i"));
  const keys = swatches.map((swatch, group) =>
    el("button", { type: "button", "aria-pressed": "true", click: (event) => {
      hidden.delete(group) || hidden.add(group);
      event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(group)));
      draw(chart.clientWidth);
    } }, swatch, group === colours && names.length > colours + 1 ? "others" : names[group]));
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
    swatches.forEach((swatch, group) => (swatch.style.background = seriesColour(group)));
    const both = data.diagonal ? spread([...xs, ...ys]) : null;
    const frame = frameOf({ x: padded(both ?? spread(xs), false, 0.05), y: padded(both ?? spread(ys), false, 0.05) }, data, width, height);
    const shown = xs.map((_, i) => i).filter((i) => marks.has(i) || !hidden.has(Math.min(data.groups[i] ?? -1, colours)));
    shown.sort((a, b) => marks.has(a) - marks.has(b)); // what stands out is drawn last
    const dots = shown.map((i) => {
      const at = { cx: frame.x(xs[i]).toFixed(1), cy: frame.y(ys[i]).toFixed(1) };
      return svg("circle", { ...at, class: marks.has(i) ? "dot marked" : "dot", r: marks.has(i) ? 6 : 3.4, style: `fill: ${colour(i)}` });
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
    const line = both ? [svg("line", { class: "cross", x1: frame.x(both[0]), y1: frame.y(both[0]), x2: frame.x(both[1]), y2: frame.y(both[1]) })] : [];
    const drawing = svg("svg", { width, height, role: "img", "aria-label": `${label(data.title) || "points"}, ${xs.length} of them` },
      ...frame.parts, ...line, ...dots, ...told);
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
    chart.replaceChildren(drawing);
  };
  onWidth(chart, draw);
  const key = names.length ? el("div", { class: "keys" }, ...keys) : null;
  return [heading(data.title), key, chart, finite.length ? colourBar("sequential", ...domain, label(data.unit)) : null];
};
