// Matrices on a canvas: labels that thin out, a read-out under pointer and arrow keys.
const LABEL_FONT = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const LABEL_GAP = 12; // pixels one label needs
const [LARGEST_CELL, LARGEST_MAP] = [38, 760];

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

// Sizes of a map: square cells unless the matrix is far from square.
function mapLayout(context, matrix, names, width) {
  context.font = LABEL_FONT;
  const longest = (texts, step, most) => {
    const widths = texts.filter((_, i) => i % step === 0).map((text) => context.measureText(text).width);
    return Math.min(most, Math.ceil(Math.max(0, ...widths)) + 8);
  };
  const left = longest(names.rows, stride(Math.min(LARGEST_CELL, LARGEST_MAP / matrix.rows)), Math.min(150, width / 3));
  let w = Math.min(LARGEST_CELL, (width - left) / matrix.columns);
  let h = Math.min(LARGEST_CELL, LARGEST_MAP / matrix.rows);
  const ratio = matrix.rows / matrix.columns;
  if (ratio > 0.2 && ratio < 5) w = h = Math.min(w, h);
  const flat = names.columns.every((text) => context.measureText(text).width <= w - 4);
  const top = flat ? 18 : longest(names.columns, stride(w), 110);
  return { left, top, w, h, flat, width: left + w * matrix.columns, height: top + h * matrix.rows };
}

function drawLabels(context, names, at) {
  context.font = LABEL_FONT;
  context.fillStyle = css("--muted");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (let r = 0; r < names.rows.length; r += stride(at.h))
    context.fillText(clip(context, names.rows[r], at.left - 8), at.left - 6, at.top + (r + 0.5) * at.h);
  context.textAlign = at.flat ? "center" : "left";
  for (let c = 0; c < names.columns.length; c += at.flat ? 1 : stride(at.w)) {
    context.save();
    context.translate(at.left + (c + 0.5) * at.w, at.top - (at.flat ? 9 : 5));
    if (!at.flat) context.rotate(-Math.PI / 2);
    context.fillText(clip(context, names.columns[c], at.flat ? at.w : at.top - 8), 0, 0);
    context.restore();
  }
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

// options: rows, columns (shown labels), scale() → colour function, lines(r, c) → read-out,
// values(number) → what stands in a cell that has room, if anything does; marks, cells to outline.
function mapView(matrix, options) {
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": options.describe });
  const cursor = el("div", { class: "cursor", hidden: true });
  const box = el("div", { class: "map" }, canvas, cursor);
  const names = { rows: options.rows, columns: options.columns };
  let at = null;
  let cell = [0, 0];
  onWidth(box, (width) => {
    at = mapLayout(canvas.getContext("2d"), matrix, names, width);
    const context = canvasOf(canvas, Math.ceil(at.width), Math.ceil(at.height));
    const scale = options.scale();
    const [w, h] = [at.w * matrix.columns, at.h * matrix.rows];
    context.fillStyle = hatch(context);
    context.fillRect(at.left, at.top, w, h);
    context.imageSmoothingEnabled = at.w < 1 || at.h < 1;
    context.drawImage(matrixImage(matrix, scale), at.left, at.top, w, h);
    drawLabels(context, names, at);
    if (options.values && at.w >= 30 && at.h >= 18) drawValues(context, matrix, scale, at, options.values);
    drawMarks(context, options.marks ?? [], at);
  });
  const point = ([r, c], x, y) => {
    cell = [r, c];
    cursor.hidden = false;
    cursor.style.cssText = `left:${at.left + c * at.w}px;top:${at.top + r * at.h}px;width:${at.w}px;height:${at.h}px`;
    const corner = cursor.getBoundingClientRect();
    showTip(options.lines(r, c), x ?? corner.right, y ?? corner.bottom);
  };
  const leave = () => {
    cursor.hidden = true;
    hideTip();
  };
  const move = (event) => {
    const edge = canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - edge.left - at.left) / at.w);
    const r = Math.floor((event.clientY - edge.top - at.top) / at.h);
    const inside = r >= 0 && c >= 0 && r < matrix.rows && c < matrix.columns;
    inside ? point([r, c], event.clientX, event.clientY) : leave();
  };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerdown", move);
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in ARROWS)) return;
    event.preventDefault();
    const [dx, dy] = cursor.hidden ? [0, 0] : ARROWS[event.key];
    point([clamp(cell[0] + dy, 0, matrix.rows - 1), clamp(cell[1] + dx, 0, matrix.columns - 1)]);
  });
  return box;
}

// A value, and how exact it is where it was stored in few bits.
function exactness(matrix, r, c) {
  const [value, bounds] = [matrix.get(r, c), matrix.bounds(r, c)];
  if (!bounds || Number.isNaN(value)) return format(value);
  return `${format(value)} (stored in ${matrix.bits} bits: ${format(bounds[0])} to ${format(bounds[1])})`;
}

// Weights too small for two digits leave their cell to the colour.
const weightInCell = (weight) => (weight < 0.005 ? "" : weight.toFixed(2));

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
  const inCell = weighed ? weightInCell : (value) => format(value, 2);
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
