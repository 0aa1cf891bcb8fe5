// Values with their intervals, a dot each, on an axis of their own range. An infinite one has its row as well:
// an arrow to the end that it lies beyond.
const [ROW_HEIGHT, AXIS_HEIGHT, VALUE_WIDTH] = [28, 46, 62];

function rowLabel(name, y, room) {
  const shown = name.length * 7.2 > room ? name.slice(0, Math.max(1, Math.floor(room / 7.2) - 2)) + "…" : name;
  return svg("text", { class: "name", x: room - 10, y: y + 4, "text-anchor": "end" }, shown);
}

renderers.intervals = (data) => {
  const [values, low, high] = [data.values, data.low, data.high].map((list) => list.map(toNumber));
  const names = data.labels.map((text) => label(text));
  const ends = [...values, ...low, ...high].filter(Number.isFinite);
  const domain = padded([Math.min(...ends), Math.max(...ends)], false, 0.06);
  const chart = el("div");
  onWidth(chart, (width) => {
    const left = Math.min(width * 0.38, 14 + 7.2 * names.reduce((a, name) => Math.max(a, name.length), 3));
    const right = width - VALUE_WIDTH;
    const [x, bottom] = [positionOf(domain, false, left, right), values.length * ROW_HEIGHT];
    const grid = ticksOf(domain, false, Math.max(3, Math.floor((right - left) / 80))).flatMap((tick) => [
      svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: bottom }),
      svg("text", { x: x(tick), y: bottom + 17, "text-anchor": "middle" }, shortNumber(tick)),
    ]);
    const rows = values.map((value, i) => {
      const y = (i + 0.5) * ROW_HEIGHT;
      const quiet = data.highlight.length && !data.highlight.includes(i);
      const spread = Number.isFinite(low[i]) && Number.isFinite(high[i]);
      const whisker = spread ? `M${x(low[i])} ${y}H${x(high[i])}M${x(low[i])} ${y - 5}v10M${x(high[i])} ${y - 5}v10` : "";
      const beyond = value > 0 ? `M${left + 6} ${y}H${right - 4}m-7 -5l7 5l-7 5` : `M${right - 6} ${y}H${left + 4}m7 -5l-7 5l7 5`;
      const shape = Number.isFinite(value) ? svg("circle", { class: quiet ? "point quiet" : "point", cx: x(value), cy: y, r: 5 })
        : svg("path", { class: Number.isNaN(value) ? "beyond none" : "beyond", d: beyond });
      return withTip(svg("g", {}, svg("rect", { x: 0, y: y - ROW_HEIGHT / 2, width, height: ROW_HEIGHT, fill: "transparent" }),
        rowLabel(names[i], y, left),
        spread ? svg("path", { class: "interval", d: whisker }) : null, shape,
        svg("text", { class: "name", x: right + 10, y: y + 4 }, Number.isNaN(value) ? "–" : format(value))),
      () => [names[i], `${format(value)} ${label(data.axis)}`, spread ? `95%: ${format(low[i])} to ${format(high[i])}` : null].filter(Boolean));
    });
    const frame = { width, height: bottom + AXIS_HEIGHT, role: "img", "aria-label": label(data.title) || "intervals" };
    chart.replaceChildren(svg("svg", frame, ...grid, svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }), ...rows,
      svg("text", { x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, label(data.axis))));
  });
  return [heading(data.title), chart];
};
