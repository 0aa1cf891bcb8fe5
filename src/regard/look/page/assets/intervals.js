// Values with their intervals, a dot each, on an axis of their own range. An infinite one has its row as well:
// an arrow to the end that it lies beyond.
const [ROW_HEIGHT, AXIS_HEIGHT, VALUE_WIDTH] = [28, 46, 62];
const FAR = 4; // times the range of the better half: then it has the axis at first

function rowLabel(name, y, room) {
  const shown = name.length * 7.2 > room ? name.slice(0, Math.max(1, Math.floor(room / 7.2) - 2)) + "…" : name;
  return svg("text", { class: "name", x: room - 10, y: y + 4, "text-anchor": "end" }, shown);
}

renderers.intervals = (data) => {
  const [values, low, high] = [data.values, data.low, data.high].map((list) => list.map(toNumber));
  const names = data.labels.map((text) => label(text));
  const spread = (rows) => {
    const ends = rows.flatMap((i) => [values[i], low[i], high[i]]).filter(Number.isFinite);
    return [ends.reduce((a, b) => Math.min(a, b), Infinity), ends.reduce((a, b) => Math.max(a, b), -Infinity)];
  };
  const order = values.map((_, i) => i).filter((i) => Number.isFinite(values[i])).sort((a, b) => values[a] - values[b]);
  if (data.better === "more") order.reverse();
  const [all, near] = [spread(order), spread(order.slice(0, Math.ceil(order.length / 2)))];
  const pressed = data.better && order.length > 3 && all[1] - all[0] > FAR * (near[1] - near[0]);
  let domain = padded(pressed ? near : all, false, 0.06);
  const chart = el("div");
  const view = (name, ends) => el("button", { type: "button", "aria-pressed": String(ends === near), click: (event) => {
    domain = padded(ends, false, 0.06);
    for (const button of event.currentTarget.parentElement.children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
    draw(chart.clientWidth);
  } }, name);
  const toggle = pressed ? el("span", { class: "toggle", role: "group", "aria-label": "range of the axis" }, view("the better half", near), view("all", all)) : null;
  const draw = (width) => {
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
      const inside = value >= domain[0] && value <= domain[1];
      const spread = Number.isFinite(low[i]) && Number.isFinite(high[i]);
      const whisker = spread && inside ? `M${x(low[i])} ${y}H${x(high[i])}M${x(low[i])} ${y - 5}v10M${x(high[i])} ${y - 5}v10` : "";
      const beyond = value > domain[1] ? `M${left + 6} ${y}H${right - 4}m-7 -5l7 5l-7 5` : `M${right - 6} ${y}H${left + 4}m7 -5l-7 5l7 5`;
      const shape = inside ? svg("circle", { class: quiet ? "point quiet" : "point", cx: x(value), cy: y, r: 5 })
        : svg("path", { class: Number.isNaN(value) ? "beyond none" : "beyond", d: beyond });
      return withTip(svg("g", {}, svg("rect", { x: 0, y: y - ROW_HEIGHT / 2, width, height: ROW_HEIGHT, fill: "transparent" }),
        rowLabel(names[i], y, left),
        whisker ? svg("path", { class: "interval", d: whisker }) : null, shape,
        svg("text", { class: "name", x: right + 10, y: y + 4 }, Number.isNaN(value) ? "–" : format(value))),
      () => [names[i], `${format(value)} ${label(data.axis)}`, spread ? `95%: ${format(low[i])} to ${format(high[i])}` : null].filter(Boolean));
    });
    const frame = { width, height: bottom + AXIS_HEIGHT, role: "img", "aria-label": label(data.title) || "intervals" };
    chart.replaceChildren(svg("svg", frame, ...grid, svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }), ...rows,
      svg("text", { x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, label(data.axis))));
  };
  onWidth(chart, draw);
  return [heading(data.title), toggle, chart];
};
