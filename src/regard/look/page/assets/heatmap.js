// Matrices on a canvas: labels that thin out, a read-out under pointer and arrow keys.
const LABEL_FONT = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const LABEL_GAP = 12; // pixels one label needs
const [LARGEST_CELL, LARGEST_MAP] = [38, 760];
const [ZOOMED, MINIMAP] = [40, 120]; // rows or columns from which on a map can be enlarged; pixels

function clip(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const characters = Array.from(text);
  while (characters.length > 1 && context.measureText(characters.join("") + "…").width > room) characters.pop();
  return characters.join("") + "…";
}
// Every how many labels fit: 1, 2, 5, 10, 20, 50 …
function stride(cell) {
  for (let unit = 1; ; unit *= 10)
    for (const step of [1, 2, 5]) if (step * unit * cell >= LABEL_GAP) return step * unit;
}
// The labels of an axis, null where there is none. Where not all names fit, every how many-th would mislead:
// positions are numbered instead, and a zoomed part has its names.
function axisLabels(names, first, cell) {
  const step = stride(cell);
  return step === 1 ? names : names.map((_, i) => ((first + i + 1) % step ? null : format(first + i + 1)));
}

// Sizes of a map: square cells unless the matrix is far from square.
function mapLayout(context, matrix, names, width) {
  context.font = LABEL_FONT;
  const longest = (texts, most) => {
    const widths = texts.map((text) => (text === null ? 0 : context.measureText(text).width));
    return Math.min(most, Math.ceil(Math.max(0, ...widths)) + 8);
  };
  const { first } = names;
  const tallest = Math.min(LARGEST_CELL, LARGEST_MAP / matrix.rows);
  const left = longest(axisLabels(names.rows, first[0], tallest), Math.min(150, width / 3));
  let w = Math.min(LARGEST_CELL, (width - left) / matrix.columns);
  let h = tallest;
  const ratio = matrix.rows / matrix.columns;
  if (ratio > 0.2 && ratio < 5) w = h = Math.min(w, h);
  const columns = axisLabels(names.columns, first[1], w);
  const flat = stride(w) === 1 && columns.every((text) => context.measureText(text).width <= w - 4);
  const top = flat ? 18 : longest(columns, 110);
  return { left, top, w, h, flat, width: left + w * matrix.columns, height: top + h * matrix.rows };
}

function drawLabels(context, names, at) {
  context.font = LABEL_FONT;
  context.fillStyle = css("--muted");
  context.textBaseline = "middle";
  context.textAlign = "right";
  axisLabels(names.rows, names.first[0], at.h).forEach((text, r) => {
    if (text !== null) context.fillText(clip(context, text, at.left - 8), at.left - 6, at.top + (r + 0.5) * at.h);
  });
  context.textAlign = at.flat ? "center" : "left";
  axisLabels(names.columns, names.first[1], at.w).forEach((text, c) => {
    if (text === null) return;
    context.save();
    context.translate(at.left + (c + 0.5) * at.w, at.top - (at.flat ? 9 : 5));
    if (!at.flat) context.rotate(-Math.PI / 2);
    context.fillText(clip(context, text, at.flat ? at.w : at.top - 8), 0, 0);
    context.restore();
  });
}

function hatch(context) {
  const tile = el("canvas", { width: 6, height: 6 });
  const ink = tile.getContext("2d");
  ink.strokeStyle = css("--line");
  ink.stroke(new Path2D("M-1 1 L1 -1 M0 6 L6 0 M5 7 L7 5"));
  return context.createPattern(tile, "repeat");
}

function drawValues(context, matrix, scale, at, words) {
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  for (let r = 0; r < matrix.rows; r++)
    for (let c = 0; c < matrix.columns; c++) {
      const value = matrix.get(r, c);
      const text = words(value);
      if (!Number.isFinite(value) || context.measureText(text).width > at.w - 4) continue;
      const colour = scale(value);
      context.fillStyle = colour ? inkOn(colour) : css("--muted");
      context.fillText(text, at.left + (c + 0.5) * at.w, at.top + (r + 0.5) * at.h);
    }
}

function drawMarks(context, marks, at) {
  const inset = at.w > 10 && at.h > 10 ? 1.5 : 0.5;
  context.strokeStyle = css("--mark");
  context.lineWidth = at.w > 10 && at.h > 10 ? 2 : 1;
  for (const [r, c] of marks)
    context.strokeRect(at.left + c * at.w + inset, at.top + r * at.h + inset, at.w - 2 * inset, at.h - 2 * inset);
}

// A part of a matrix: rows r0 to r1 and columns c0 to c1, without the ends.
function partOf(matrix, [r0, r1, c0, c1]) {
  const at = (f) => (r, c) => matrix[f](r0 + r, c0 + c);
  return { ...matrix, rows: r1 - r0, columns: c1 - c0, get: at("get"), bounds: at("bounds") };
}

// The whole map small, with the enlarged part outlined; a click or a drag moves that part.
function miniMap(matrix, options, move) {
  const [overview, canvas] = [options.overview ?? shrink(matrix, MINIMAP), el("canvas", { "aria-hidden": true })];
  const unit = MINIMAP / Math.max(matrix.rows, matrix.columns);
  const go = (event) => {
    if (!event.buttons) return;
    const edge = canvas.getBoundingClientRect();
    move((event.clientY - edge.top) / unit, (event.clientX - edge.left) / unit);
  };
  canvas.addEventListener("pointerdown", go);
  canvas.addEventListener("pointermove", go);
  const draw = ([r0, r1, c0, c1]) => {
    const context = canvasOf(canvas, matrix.columns * unit, matrix.rows * unit);
    context.drawImage(matrixImage(overview, options.scale()), 0, 0, matrix.columns * unit, matrix.rows * unit);
    context.strokeStyle = css("--mark");
    context.lineWidth = 2;
    context.strokeRect(c0 * unit + 1, r0 * unit + 1, Math.max(2, (c1 - c0) * unit - 2), Math.max(2, (r1 - r0) * unit - 2));
  };
  return { canvas, draw };
}

// options: rows, columns (shown labels), scale() → colour function, lines(r, c) → read-out,
// values(number) → what stands in a cell that has room, if anything does; marks, cells to outline;
// pooled, whether several cells under one pixel show their greatest; overview, the whole map in few cells.
// A large map can be enlarged: drag over a part, or press + and −.
function mapView(matrix, options) {
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": options.describe });
  const [cursor, chosen] = [el("div", { class: "cursor", hidden: true }), el("div", { class: "selection", hidden: true })];
  const box = el("div", { class: "map" }, canvas, cursor, chosen);
  const whole = [0, matrix.rows, 0, matrix.columns];
  const large = Math.max(matrix.rows, matrix.columns) > ZOOMED;
  let [view, part, at, cell, drag] = [whole, matrix, null, [0, 0], null];
  const draw = (width) => {
    part = partOf(matrix, view);
    cursor.hidden = chosen.hidden = true; // they were placed for another width
    const names = { rows: options.rows.slice(view[0], view[1]), columns: options.columns.slice(view[2], view[3]), first: [view[0], view[2]] };
    at = mapLayout(canvas.getContext("2d"), part, names, width);
    const context = canvasOf(canvas, Math.ceil(at.width), Math.ceil(at.height));
    const scale = options.scale();
    const [w, h] = [at.w * part.columns, at.h * part.rows];
    context.fillStyle = hatch(context);
    context.fillRect(at.left, at.top, w, h);
    const crowded = options.pooled && Math.max(w, h) * (window.devicePixelRatio || 1) < Math.max(part.rows, part.columns);
    context.imageSmoothingEnabled = !crowded && (at.w < 1 || at.h < 1);
    context.drawImage(matrixImage(crowded ? shrink(part, Math.ceil(Math.max(w, h))) : part, scale), at.left, at.top, w, h);
    drawLabels(context, names, at);
    if (options.values && at.w >= 30 && at.h >= 18) drawValues(context, part, scale, at, options.values);
    const marks = (options.marks ?? []).map(([r, c]) => [r - view[0], c - view[2]]);
    drawMarks(context, marks.filter(([r, c]) => r >= 0 && c >= 0 && r < part.rows && c < part.columns), at);
    const zoomed = view.some((edge, i) => edge !== whole[i]);
    aside.hidden = !zoomed;
    if (zoomed) mini.draw(view);
  };
  const zoom = (next) => {
    view = next;
    leave();
    draw(box.clientWidth);
  };
  // A window of this size around a cell, inside the matrix.
  const around = ([r, c], rows, columns) => {
    const [h, w] = [clamp(Math.round(rows), 1, matrix.rows), clamp(Math.round(columns), 1, matrix.columns)];
    const [top, left] = [clamp(Math.round(r - h / 2), 0, matrix.rows - h), clamp(Math.round(c - w / 2), 0, matrix.columns - w)];
    return [top, top + h, left, left + w];
  };
  const mini = large ? miniMap(matrix, options, (r, c) => zoom(around([r, c], part.rows, part.columns))) : null;
  const aside = el("div", { class: "minimap", hidden: true }, mini?.canvas ?? null,
    el("button", { type: "button", class: "link", click: () => zoom(whole) }, "whole map"));
  const frame = (element, [r, c], [rows, columns]) => {
    element.hidden = false;
    element.style.cssText = `left:${at.left + c * at.w}px;top:${at.top + r * at.h}px;width:${columns * at.w}px;height:${rows * at.h}px`;
  };
  const point = ([r, c], x, y) => {
    cell = [r, c];
    frame(cursor, [r - view[0], c - view[2]], [1, 1]);
    const corner = cursor.getBoundingClientRect();
    showTip(options.lines(r, c), x ?? corner.right, y ?? corner.bottom);
  };
  const leave = () => {
    cursor.hidden = chosen.hidden = true;
    hideTip();
  };
  const under = (event) => {
    const edge = canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - edge.left - at.left) / at.w);
    const r = Math.floor((event.clientY - edge.top - at.top) / at.h);
    return { r, c, inside: r >= 0 && c >= 0 && r < part.rows && c < part.columns };
  };
  const move = (event) => {
    const { r, c, inside } = under(event);
    inside ? point([view[0] + r, view[2] + c], event.clientX, event.clientY) : leave();
    if (!drag) return;
    const [r1, c1] = [clamp(r, 0, part.rows - 1), clamp(c, 0, part.columns - 1)];
    const corner = [Math.min(drag[0], r1), Math.min(drag[1], c1)];
    drag.size = [Math.abs(r1 - drag[0]) + 1, Math.abs(c1 - drag[1]) + 1];
    drag.corner = corner;
    frame(chosen, corner, drag.size);
  };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerdown", (event) => {
    const { r, c, inside } = under(event);
    if (large && inside && event.pointerType === "mouse") {
      drag = [r, c];
      canvas.setPointerCapture(event.pointerId);
    }
    move(event);
  });
  canvas.addEventListener("pointerup", () => {
    const done = drag;
    drag = null;
    chosen.hidden = true;
    if (!done?.size || Math.max(...done.size) < 3) return;
    const [r, c] = [view[0] + done.corner[0], view[2] + done.corner[1]];
    zoom([r, r + done.size[0], c, c + done.size[1]]);
  });
  canvas.addEventListener("pointerleave", () => drag ?? leave());
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    const scale = large ? { "+": 0.5, "=": 0.5, "-": 2, "−": 2 }[event.key] : undefined;
    if (scale) {
      event.preventDefault();
      zoom(around(cell, Math.max(4, part.rows * scale), Math.max(4, part.columns * scale)));
      return point(cell);
    }
    if (!(event.key in ARROWS)) return;
    event.preventDefault();
    const [dx, dy] = cursor.hidden ? [0, 0] : ARROWS[event.key];
    cell = [clamp(cell[0] + dy, 0, matrix.rows - 1), clamp(cell[1] + dx, 0, matrix.columns - 1)];
    const [r0, r1, c0, c1] = view;
    if (cell[0] < r0 || cell[0] >= r1 || cell[1] < c0 || cell[1] >= c1) zoom(around(cell, part.rows, part.columns));
    point(cell);
  });
  onWidth(box, draw);
  if (!large) return box;
  return el("div", {}, box, aside, el("p", { class: "hint" },
    "Drag over a part of the map to enlarge it, or press + and − at a cell; numbers count positions, a part shows its labels."));
}

// A value, and how exact it is where it was stored in few bits.
function exactness(matrix, r, c) {
  const [value, bounds] = [matrix.get(r, c), matrix.bounds(r, c)];
  if (!bounds || Number.isNaN(value)) return format(value);
  if (bounds[0] === 0 && bounds[1] > 0 && matrix.known && !matrix.known(r, c)) return `at most ${format(bounds[1], 2)}`;
  return `${format(value)} (stored in ${matrix.bits} bits: ${format(bounds[0])} to ${format(bounds[1])})`;
}

// Weights too small for two digits leave their cell to the colour.
const weightInCell = (weight) => (weight < 0.005 ? "" : weight.toFixed(2));

// Two digits, or all of a whole part: 127 is not 130.
const shortInCell = (value) => format(value, Math.max(2, Math.floor(Math.log10(Math.abs(value) || 1)) + 1));

function colourBar(kind, low, high, unit = "") {
  const bar = el("span", { class: "bar" });
  onWidth(bar, () => (bar.style.background = gradient(kind)));
  return el("div", { class: "legend" }, format(low), bar, `${format(high)} ${unit}`);
}
function maskKey() {
  const [no, yes] = [el("span", { class: "swatch" }), el("span", { class: "swatch" })];
  onWidth(yes, () => {
    no.style.background = rgb(ramp("mask")[0]);
    yes.style.background = rgb(ramp("mask")[LEVELS - 1]);
  });
  return el("div", { class: "legend" }, yes, "may attend", no, "may not");
}

renderers.heatmap = (data) => {
  const matrix = matrixOf(unpack(data.values));
  let [low, high] = extent(matrix);
  const reach = Math.max(Math.abs(low), Math.abs(high));
  if (data.scale === "diverging") [low, high] = [-reach, reach];
  if (data.scale === "logarithmic" || (data.scale === "sequential" && low > 0 && low < 0.3 * high)) low = 0;
  const [rows, columns] = [data.rows.map(tokenOrName), data.columns.map(tokenOrName)];
  const [masked, weighed] = [data.scale === "mask", data.scale === "weights"];
  const [colours, domain] = weighed ? ["sequential", [0, 1]] : [data.scale, [low, high]];
  const inCell = weighed ? weightInCell : shortInCell;
  const words = (r, c) => {
    const value = matrix.get(r, c);
    if (masked) return value ? "may attend" : "may not attend";
    return `${exactness(matrix, r, c)} ${label(data.unit)}`;
  };
  const view = mapView(matrix, {
    rows, columns, marks: data.marks, values: masked ? null : inCell, scale: () => scaleOf(colours, domain, weighed),
    describe: `${label(data.title) || "heat map"}, ${matrix.rows} by ${matrix.columns}; arrow keys read it`,
    lines: (r, c) => [words(r, c), `row ${r + 1}: ${rows[r]}`, `column ${c + 1}: ${columns[c]}`],
  });
  const key = masked ? maskKey() : colourBar(colours, ...domain, label(data.unit));
  const note = data.scale === "logarithmic" ? el("p", { class: "hint" }, "Colour follows the logarithm; hatched is 0.") : null;
  return [heading(data.title), view, key, note];
};
