// Forecasts of several models on one window of a series; a slider moves to other windows.
const DASHES = [null, "6 4", "2 3"];
const MANY_CURVES = 7; // beyond them colours come round again
const NAME_ROOM = 110; // pixels for names at the ends of curves
const TICK_STEPS = [1, 2, 3, 4, 6, 7, 8, 12, 14, 24, 28, 48, 72, 96, 168];

function clockOf({ times, step, characters }) {
  const at = (w, i) => (step ? times[w][0] + i * step : times[w][i]);
  const full = (value) => (characters ? new Date(value).toISOString().slice(0, characters).replace("T", " ") : format(value, 15));
  return {
    full: (w, i) => full(at(w, i)),
    short: (w, i) => (characters > 10 ? full(at(w, i)).slice(5) : full(at(w, i))), // without the year
  };
}

renderers.forecasts = (data) => {
  const [forecasts, history, truth] = [data.forecasts, data.history, data.truth].map(unpack);
  const [rows, windows, horizon, channels] = forecasts.shape;
  const before = history.shape[1];
  const clock = clockOf(data);
  const names = data.names.map(label);
  const hidden = new Set(names.map((_, i) => i).filter((i) => i >= data.visible));
  let [at, target] = [windows - 1, 0];
  const values = (array, steps, offset) => Array.from({ length: steps }, (_, s) => array.get((offset + s) * channels + target));
  const forecastOf = (row) => values(forecasts, horizon, (row * windows + at) * horizon);
  const colours = list("--series").length;
  const chart = el("div");
  const swatches = names.map(() => el("i"));
  const errors = names.map(() => el("span", { class: "number" }));
  const buttons = names.map((name, i) =>
    el("button", { type: "button", "aria-pressed": String(!hidden.has(i)), click: () => {
      hidden.delete(i) || hidden.add(i);
      draw();
    } }, swatches[i], name, errors[i]));
  const all = (text, show) => el("button", { type: "button", class: "every", click: () => {
    names.forEach((_, i) => (show ? hidden.delete(i) : hidden.add(i)));
    draw();
  } }, text);
  const keys = el("div", { class: "keys" }, ...buttons, all("all", true), all("none", false));
  const place = el("output", {});
  const slider = el("input", { type: "range", min: 0, max: windows - 1, step: 1, "aria-label": "window", input: () => {
    at = Number(slider.value);
    draw();
  } });
  slider.value = at;
  const choice = el("select", { "aria-label": "target", change: () => {
    target = choice.selectedIndex;
    draw();
  } }, ...data.targets.map((name) => el("option", {}, label(name))));

  const draw = (width = chart.clientWidth) => {
    if (!width) return;
    const height = clamp(width * 0.45, 240, 400);
    const past = values(history, before, at * before);
    const future = values(truth, horizon, at * horizon);
    const origin = clock.full(at, before);
    const series = data.labels.length ? `${label(data.labels[at])}, ` : "";
    place.textContent = `${series}${origin}, window ${format(at + 1)} of ${format(windows)}`;
    slider.setAttribute("aria-valuetext", place.textContent);
    const drawn = names.map((name, i) => {
      const y = forecastOf(i);
      const gaps = y.map((value, s) => Math.abs(value - future[s])).filter(Number.isFinite);
      const error = gaps.length ? gaps.reduce((a, b) => a + b, 0) / gaps.length : NaN;
      errors[i].textContent = gaps.length ? format(error, 3) : "–";
      buttons[i].setAttribute("aria-pressed", String(!hidden.has(i)));
      const dash = DASHES[Math.min(DASHES.length - 1, Math.floor(i / colours))];
      const colour = seriesColour(i);
      swatches[i].style.background = dash ? `repeating-linear-gradient(90deg, ${colour} 0 5px, transparent 5px 8px)` : colour;
      return { name, y, colour, dash, row: i };
    }).filter((one) => !hidden.has(one.row));

    // A forecast that runs away is cut off at the frame: the truth must stay readable.
    const [least, most] = extent({ rows: 1, columns: before + horizon, get: (_, c) => (c < before ? past[c] : future[c - before]) });
    const reach = most - least || Math.abs(most) || 1;
    const inside = drawn.flatMap((one) => one.y).filter((y) => y > least - reach && y < most + reach);
    const y = padded([Math.min(least, ...inside), Math.max(most, ...inside)], false, 0.06);
    const total = before + horizon;
    const every = TICK_STEPS.find((s) => total / s <= Math.max(2, width / 120)) ?? Math.ceil(total / Math.max(2, width / 120));
    const ticks = Array.from({ length: total }, (_, i) => i).filter((i) => (i - before) % every === 0);
    const axes = { x_ticks: ticks, x_text: (i) => clock.short(at, i), x_label: "", y_label: data.targets[target] };
    const named = drawn.length > MANY_CURVES; // their names stand at their ends
    const frame = frameOf({ x: [-0.5, total - 0.5], y }, axes, width, height, named ? NAME_ROOM : 0);
    const point = (i, value) => (Number.isFinite(value) ? [frame.x(i), clamp(frame.y(value), MARGIN.top - 6, frame.bottom)] : null);
    const curve = (first, ys, attributes) => {
      const points = ys.map((value, s) => point(first + s, value));
      const lone = points.filter((p, s) => p && !(points[s - 1] || points[s + 1]));
      return [svg("path", { class: "curve", d: pathOf(points), ...attributes }),
        ...lone.map((p) => svg("circle", { cx: p[0], cy: p[1], r: 3, fill: attributes.stroke }))];
    };
    const observed = { stroke: css("--ink"), style: "stroke-width: 2.6" };
    const start = frame.x(before - 0.5);
    const cross = svg("line", { class: "cross", y1: MARGIN.top, y2: frame.bottom, visibility: "hidden" });
    const inner = Math.max(0, frame.right - MARGIN.left);
    const area = svg("rect", { x: MARGIN.left, y: 0, width: inner, height: frame.bottom, fill: "transparent" });
    area.addEventListener("pointermove", (event) => {
      const share = (event.clientX - chart.getBoundingClientRect().left - MARGIN.left) / inner;
      const i = clamp(Math.floor(share * total), 0, total - 1);
      for (const name of ["x1", "x2"]) cross.setAttribute(name, frame.x(i));
      cross.setAttribute("visibility", "visible");
      const known = i < before ? past[i] : future[i - before];
      const step = i < before ? [] : drawn.map((one) => `${one.name}: ${format(one.y[i - before])}`);
      showTip([clock.full(at, i), `observed: ${Number.isFinite(known) ? format(known) : "missing"}`, ...step], event.clientX, event.clientY);
    });
    area.addEventListener("pointerleave", () => {
      cross.setAttribute("visibility", "hidden");
      hideTip();
    });
    const ends = drawn.map((one) => ({ ...one, at: point(total - 1, one.y[horizon - 1]) })).filter((one) => one.at);
    const items = ends.map(({ name, colour, at: [x, y] }) => ({ name, colour, x, y }));
    const direct = named ? endLabels(items, frame.right + 22, [MARGIN.top, frame.bottom]) : [];
    const title = `${label(data.targets[target])} and its forecasts from ${origin}`;
    chart.replaceChildren(svg("svg", { width, height, role: "img", "aria-label": title }, ...frame.parts,
      svg("line", { class: "cross", x1: start, x2: start, y1: MARGIN.top, y2: frame.bottom }),
      ...curve(0, past, observed),
      ...drawn.flatMap((one) => curve(before, one.y, { stroke: one.colour, "stroke-dasharray": one.dash })),
      ...curve(before, future, observed), ...direct, cross, area));
  };
  onWidth(chart, draw);
  const target_choice = channels > 1 ? el("label", {}, "target ", choice) : null;
  return [heading(data.title), el("div", { class: "window" }, target_choice, place, slider), keys, chart,
    el("p", { class: "hint" }, "The thick line is what was observed; forecasts begin at the dashed one.")];
};
