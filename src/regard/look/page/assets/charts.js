// Lines with bands, bars with intervals, histograms.
const usable = (value, log) => Number.isFinite(value) && (!log || value > 0);

function pathOf(points) {
  let pen = "M";
  return points.map((point) => {
    if (!point) return void (pen = "M") ?? "";
    const piece = `${pen}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    pen = "L";
    return piece;
  }).join("");
}

function domainOf(series, data) {
  const spread = (lists, log) => {
    let [low, high] = [Infinity, -Infinity];
    for (const value of lists.flat()) if (usable(value, log)) [low, high] = [Math.min(low, value), Math.max(high, value)];
    return [low, high];
  };
  return {
    x: padded(spread([...series.map((s) => s.x), data.x_ticks], data.log_x), data.log_x, 0.01),
    y: padded(spread([...series.flatMap((s) => [s.y, s.low, s.high, s.area ? [0] : []]), data.levels.map((l) => l[1])], data.log_y), data.log_y, 0.06),
    whole: series.every((s) => s.x.every(Number.isInteger)), // then no tick falls between two of them
  };
}

function drawSeries(series, frame, data) {
  const point = (x, y) => (usable(x, data.log_x) && usable(y, data.log_y) ? [frame.x(x), frame.y(y)] : null);
  const parts = data.levels.flatMap(([name, value]) => [
    svg("line", { class: "cross", x1: MARGIN.left, x2: frame.right, y1: frame.y(value), y2: frame.y(value) }),
    svg("text", { x: MARGIN.left + 6, y: frame.y(value) - 5 }, label(name)),
  ]);
  for (const { x, y, low, high, colour, dash, dots, area } of series) {
    const [under, over] = [low, high].map((edge) => edge.map((value, i) => point(x[i], value)));
    const whole = under.map((p, i) => p && over[i]);
    const band = [...over.filter((_, i) => whole[i]), ...under.filter((_, i) => whole[i]).reverse()];
    if (band.length === 2) parts.push(svg("path", { class: "interval", d: pathOf(band) }));
    else if (band.length) parts.push(svg("path", { d: pathOf(band) + "Z", fill: colour, opacity: 0.16 }));
    const points = y.map((value, i) => point(x[i], value));
    const solid = area ? points.filter(Boolean) : [];
    if (solid.length) {
      const [first, last] = [solid[0], solid[solid.length - 1]];
      const d = pathOf([[first[0], frame.bottom], ...solid, [last[0], frame.bottom]]) + "Z";
      parts.push(svg("path", { class: "area", d }));
      continue;
    }
    if (!dots) parts.push(svg("path", { class: "curve", d: pathOf(points), stroke: colour, "stroke-dasharray": dash }));
    // A point between two gaps has no line to show it.
    const lone = points.filter((p, i) => p && (dots || points.length <= 24 || !(points[i - 1] || points[i + 1])));
    const r = band.length === 2 ? 5 : 2.6;
    parts.push(...lone.map((p) => svg("circle", { cx: p[0], cy: p[1], r, fill: colour })));
  }
  return parts;
}

function nearest(values, target, place) {
  let best = -1;
  values.forEach((value, i) => {
    if (best < 0 || Math.abs(place(value) - target) < Math.abs(place(values[best]) - target)) best = i;
  });
  return best;
}

function lastPoint(s, frame, data) {
  const i = s.y.findLastIndex((y, i) => usable(y, data.log_y) && usable(s.x[i], data.log_x));
  return i < 0 ? [] : [{ name: s.name, x: frame.x(s.x[i]), y: frame.y(s.y[i]), colour: s.colour }];
}

renderers.lines = (data) => {
  const [colours, areas] = [list("--series").length, data.areas.length];
  const single = data.series.length > 1 && data.series.every((s) => s.x.length === 1); // each is a point: its name stands beside it
  const named = !single && !data.ordered && data.series.length - areas > colours; // colours repeat: names stand at the ends
  const all = data.series.map((s, i) => ({
    name: label(s.name), x: s.x.map(toNumber), y: s.y.map(toNumber),
    low: (s.low ?? []).map(toNumber), high: (s.high ?? []).map(toNumber), dash: i < colours + areas || data.ordered ? null : "6 4", dots: data.dots.includes(s.name),
    area: data.areas.includes(s.name),
  })).sort((a, b) => b.area - a.area); // areas are a background
  const hidden = new Set();
  const chart = el("div");
  const swatches = all.map((s) => el("i", { class: s.dots ? "point" : null }));
  const keys = el("div", { class: "keys" }, ...all.map((s, i) =>
    el("button", { type: "button", "aria-pressed": "true", click: (event) => {
      hidden.delete(i) || hidden.add(i);
      event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(i)));
      draw(chart.clientWidth);
    } }, swatches[i], s.name)));
  const draw = (width) => {
    const height = clamp(width * 0.5, 220, 340);
    all.forEach((s, i) => {
      s.colour = s.area ? css("--muted") : data.ordered ? orderedColour(i, all.length) : seriesColour(i - areas);
      swatches[i].classList.toggle("block", s.area);
      swatches[i].style.background = s.dash ? `repeating-linear-gradient(90deg, ${s.colour} 0 5px, transparent 5px 8px)` : s.colour;
    });
    const shown = all.filter((_, i) => !hidden.has(i));
    const aside = named ? Math.min(width / 3, 16 + 6.6 * Math.max(0, ...shown.map((s) => s.name.length))) : 0;
    const frame = frameOf(domainOf(shown, data), data, width, height, aside);
    const points = single ? shown.flatMap((s) => lastPoint(s, frame, data)) : [];
    const ends = named ? shown.flatMap((s) => lastPoint(s, frame, data)) : [];
    const cross = svg("line", { class: "cross", y1: MARGIN.top, y2: frame.bottom, visibility: "hidden" });
    const inner = Math.max(0, frame.right - MARGIN.left);
    const area = svg("rect", { x: MARGIN.left, y: 0, width: inner, height: frame.bottom, fill: "transparent", class: "answers" });
    area.addEventListener("pointermove", (event) => {
      const target = event.clientX - chart.getBoundingClientRect().left;
      const at = shown.map((s) => nearest(s.x, target, frame.x));
      const closest = shown.map((s, j) => s.x[at[j]]).filter((x) => x !== undefined);
      if (!closest.length) return;
      const x = closest[nearest(closest, target, frame.x)];
      for (const name of ["x1", "x2"]) cross.setAttribute(name, frame.x(x));
      cross.setAttribute("visibility", "visible");
      const words = shown.map((s, j) => {
        const band = s.low.length ? ` (${format(s.low[at[j]])} to ${format(s.high[at[j]])})` : "";
        return `${s.name}: ${format(s.y[at[j]])}${band}${s.x[at[j]] === x ? "" : ` at ${format(s.x[at[j]])}`}`;
      });
      showTip([`${label(data.x_label) || "x"} ${format(x)}`, ...words], event.clientX, event.clientY);
    });
    area.addEventListener("pointerleave", () => {
      cross.setAttribute("visibility", "hidden");
      hideTip();
    });
    chart.replaceChildren(svg("svg", { width, height, role: "img", "aria-label": label(data.title) || "line chart" },
      ...frame.parts, ...drawSeries(shown, frame, data),
      ...pointLabels(points, frame.right, [MARGIN.top - 4, frame.bottom - 4]), ...endLabels(ends, frame.right + 12, [MARGIN.top, frame.bottom]), cross, area));
  };
  onWidth(chart, draw);
  const lost = (s) => s.y.filter((y, i) => !usable(y, data.log_y) || !usable(s.x[i], data.log_x)).length;
  const gaps = all.reduce((sum, s) => sum + lost(s), 0);
  const note = `${format(gaps)} ${gaps > 1 ? "points" : "point"} cannot be drawn on these axes `
    + "(not finite, or not positive on a logarithmic one).";
  return [heading(data.title), single ? null : keys, chart, gaps ? el("p", { class: "hint" }, note) : null];
};

renderers.bars = (data) => {
  const values = data.values.map(toNumber);
  const [low, high] = [data.low.map(toNumber), data.high.map(toNumber)];
  const names = data.labels.map((text) => label(text));
  const ends = [0, ...values, ...low, ...high].filter(Number.isFinite);
  const [least, most] = ends.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [0, 0]);
  const chart = el("div");
  onWidth(chart, (width) => {
    const left = Math.min(width * 0.4, 14 + 7.2 * names.reduce((a, name) => Math.max(a, name.length), 3));
    const x = positionOf([least, most || 1], false, left, width - 62);
    const bars = values.map((value, i) => {
      const y = i * 28 + 5;
      const finite = Number.isFinite(value);
      const quiet = data.highlight.length && !data.highlight.includes(i);
      const interval = Number.isFinite(low[i]) && Number.isFinite(high[i]);
      const end = finite ? Math.max(x(value), x(0), interval ? x(high[i]) : 0) : left;
      const range = interval ? `${format(low[i])} to ${format(high[i])}` : null;
      const name = names[i].length * 7.2 > left ? names[i].slice(0, Math.floor(left / 7.2) - 2) + "…" : names[i];
      const bar = { x: Math.min(x(0), x(value)), width: Math.max(1, Math.abs(x(value) - x(0))) };
      const whisker = `M${x(low[i])} ${y + 9}H${x(high[i])}M${x(low[i])} ${y + 4}v10M${x(high[i])} ${y + 4}v10`;
      return withTip(svg("g", {},
        svg("rect", { x: 0, y: y - 5, width, height: 28, fill: "transparent" }),
        svg("text", { class: "name", x: left - 10, y: y + 13, "text-anchor": "end" }, name),
        finite ? svg("rect", { class: quiet ? "fill quiet" : "fill", ...bar, y, rx: 2, height: 18 }) : null,
        interval ? svg("path", { class: "interval", d: whisker }) : null,
        svg("text", { x: end + 7, y: y + 13 }, format(value))),
      () => [names[i], `${format(value)} ${label(data.unit)}`, range].filter(Boolean));
    });
    const frame = { width, height: values.length * 28 + 4, role: "img", "aria-label": label(data.title) || "bars" };
    chart.replaceChildren(svg("svg", frame, ...bars,
      svg("line", { class: "axis", x1: x(0), x2: x(0), y1: 0, y2: values.length * 28 })));
  });
  return [heading(data.title), chart, data.unit ? el("p", { class: "hint" }, label(data.unit)) : null];
};

renderers.histogram = (data) => {
  const chart = el("div");
  const [edges, counts] = [data.edges, data.counts];
  const most = counts.reduce((a, b) => Math.max(a, b), 0);
  onWidth(chart, (width) => {
    const height = clamp(width * 0.42, 200, 280);
    const frame = frameOf({ x: [edges[0], edges[edges.length - 1]], y: [0, 1.05 * (most || 1)] }, data, width, height);
    const bars = counts.map((count, i) => {
      const [from, to] = [frame.x(edges[i]), frame.x(edges[i + 1])];
      const gap = to - from > 3 ? 1 : 0;
      const whole = { x: from, y: MARGIN.top, width: to - from, height: frame.bottom - MARGIN.top };
      const bar = { x: from, y: frame.y(count), width: Math.max(0.5, to - from - gap), height: frame.bottom - frame.y(count) };
      return withTip(svg("g", {}, svg("rect", { ...whole, fill: "transparent" }), svg("rect", { class: "fill", ...bar })),
        () => [format(count), `${format(edges[i])} to ${format(edges[i + 1])}`]);
    });
    const box = { width, height, role: "img", "aria-label": label(data.title) || "histogram" };
    chart.replaceChildren(svg("svg", box, ...frame.parts, ...bars));
  });
  return [heading(data.title), chart];
};
