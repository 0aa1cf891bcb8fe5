// A canvas for drawings, and what is drawn made like the images of training: scaled to the size that their ink has,
// put in the middle as theirs is, with strokes as wide and as dark.
const SUPERSAMPLED = 4; // samples of a pixel a side
const BOARD = 280; // pixels on the screen

// The squared distance of a point from a segment.
function fromSegment(x, y, [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const along = dx || dy ? clamp(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy), 0, 1) : 0;
  return (x - ax - along * dx) ** 2 + (y - ay - along * dy) ** 2;
}

// The share of each pixel that strokes of this width cover; points are [x, y] in pixels.
function rasterize(strokes, width, height, thickness) {
  const fine = SUPERSAMPLED;
  const [across, down] = [width * fine, height * fine];
  const covered = new Uint8Array(across * down);
  const radius = thickness / 2;
  for (const points of strokes)
    for (let i = 0; i < Math.max(1, points.length - 1); i++) {
      const [a, b] = [points[i], points[Math.min(i + 1, points.length - 1)]];
      const range = (low, high, most) => [Math.max(0, Math.floor((low - radius) * fine)), Math.min(most, Math.ceil((high + radius) * fine) + 1)];
      const [left, right] = range(Math.min(a[0], b[0]), Math.max(a[0], b[0]), across);
      const [top, bottom] = range(Math.min(a[1], b[1]), Math.max(a[1], b[1]), down);
      for (let r = top; r < bottom; r++)
        for (let c = left; c < right; c++)
          if (fromSegment((c + 0.5) / fine, (r + 0.5) / fine, a, b) <= radius * radius) covered[r * across + c] = 1;
    }
  const pixels = new Float32Array(width * height);
  for (let r = 0; r < down; r++)
    for (let c = 0; c < across; c++) pixels[Math.floor(r / fine) * width + Math.floor(c / fine)] += covered[r * across + c] / (fine * fine);
  return pixels;
}

// Strokes in any unit, scaled and moved into the frame as the drawings of training fill it.
function centred(strokes, { width, height, ink }) {
  const points = strokes.flat();
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const frame = Math.max(width, height);
  const thickness = ink.stroke * frame;
  const room = Math.max(ink.box * frame - thickness, 1);
  const scale = room / Math.max(right - left, bottom - top, 1e-6);
  const middle = [ink.center[1] * width, ink.center[0] * height];
  const moved = (dx, dy) => strokes.map((stroke) => stroke.map(([x, y]) =>
    [(x - (left + right) / 2) * scale + middle[0] + dx, (y - (top + bottom) / 2) * scale + middle[1] + dy]));
  const pixels = rasterize(moved(0, 0), width, height, thickness);
  if (!ink.mass) return pixels;
  let [sum, x, y] = [0, 0, 0];
  pixels.forEach((value, i) => {
    sum += value;
    x += value * ((i % width) + 0.5);
    y += value * (Math.floor(i / width) + 0.5);
  });
  return sum ? rasterize(moved(middle[0] - x / sum, middle[1] - y / sum), width, height, thickness) : pixels;
}

// The bytes of an image of training in which strokes cover these shares of pixels.
const inked = (shares, { dark, inverted }) => Uint8Array.from(shares, (share) => Math.round(inverted ? 255 - share * dark : share * dark));

// Bytes (height × width) as the rows of patches; an incomplete patch repeats the last row and column.
function cutPatches(pixels, { width, height, patch }) {
  const [rows, columns] = [Math.ceil(height / patch), Math.ceil(width / patch)];
  const out = new Float32Array(rows * columns * patch * patch);
  let i = 0;
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++)
      for (let y = 0; y < patch; y++)
        for (let x = 0; x < patch; x++)
          out[i++] = pixels[Math.min(r * patch + y, height - 1) * width + Math.min(c * patch + x, width - 1)];
  return out;
}

function pixelsImage(canvas, pixels, { width, height }) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  pixels.forEach((value, i) => image.data.set([value, value, value, 255], 4 * i));
  context.putImageData(image, 0, 0);
}

// A board to draw on with a pointer, or with the keyboard: arrows move the pen, the space bar lifts and lowers it.
function drawingBox(config, { name, start, changed }) {
  const board = el("canvas", { class: "board", width: BOARD, height: BOARD, tabindex: 0, role: "img",
    "aria-label": `${name}: draw with the pointer, or with the arrow keys, the space bar lifts and lowers the pen` });
  const seen = el("canvas", { class: "seen", width: config.width, height: config.height, role: "img", "aria-label": `what the model reads: ${config.height} by ${config.width} pixels` });
  let [strokes, down, pen] = [[], false, [0.5, 0.5]];
  let pixels = start ? Uint8Array.from(start) : inked(new Float32Array(config.width * config.height), config.ink);

  const draw = () => {
    const context = board.getContext("2d");
    context.clearRect(0, 0, BOARD, BOARD);
    context.strokeStyle = context.fillStyle = css("--ink");
    [context.lineWidth, context.lineCap, context.lineJoin] = [16, "round", "round"];
    for (const stroke of strokes) {
      context.beginPath();
      stroke.forEach(([x, y], i) => context[i ? "lineTo" : "moveTo"](x * BOARD, y * BOARD));
      if (stroke.length === 1) context.lineTo(stroke[0][0] * BOARD + 0.1, stroke[0][1] * BOARD);
      context.stroke();
    }
    if (document.activeElement === board && board.matches(":focus-visible")) {
      context.fillStyle = css(down ? "--mark" : "--accent");
      context.fillRect(pen[0] * BOARD - 3, pen[1] * BOARD - 3, 6, 6);
    }
    pixelsImage(seen, pixels, config);
  };
  const update = () => {
    pixels = inked(strokes.length ? centred(strokes, config) : new Float32Array(config.width * config.height), config.ink);
    draw();
    changed();
  };
  const at = (event) => {
    const edge = board.getBoundingClientRect();
    return [(event.clientX - edge.left) / edge.width, (event.clientY - edge.top) / edge.height];
  };
  board.addEventListener("pointerdown", (event) => {
    board.setPointerCapture(event.pointerId);
    down = true;
    strokes.push([at(event)]);
    update();
  });
  board.addEventListener("pointermove", (event) => {
    if (!down || !event.buttons) return;
    for (const one of event.getCoalescedEvents?.() ?? [event]) strokes.at(-1).push(at(one));
    update();
  });
  board.addEventListener("pointerup", () => (down = false));
  board.addEventListener("keydown", (event) => {
    if (event.key === " ") {
      down = !down;
      if (down) strokes.push([[...pen]]);
    } else if (event.key in ARROWS) {
      const [dx, dy] = ARROWS[event.key];
      pen = [clamp(pen[0] + dx / 20, 0, 1), clamp(pen[1] + dy / 20, 0, 1)];
      if (down) strokes.at(-1).push([...pen]);
    } else return;
    event.preventDefault();
    update();
  });
  for (const event of ["focus", "blur"]) board.addEventListener(event, draw);
  const clear = el("button", { type: "button", class: "action", click: () => {
    [strokes, down] = [[], false];
    update();
  } }, "Clear");
  onWidth(board, draw);
  const element = el("div", { class: "drawing" }, board,
    el("figure", {}, seen, el("figcaption", {}, "what the model reads")), clear);
  return { element, value: () => pixels };
}

readers.patches = (config) => ({
  hint: "Draw; the drawing is put in the middle and scaled as the images of training are, and the model reads the small image.",
  box: (options) => drawingBox(config, options),
  pixels: (pixels) => cutPatches(pixels, config),
  positions: () => {
    const [rows, columns] = [Math.ceil(config.height / config.patch), Math.ceil(config.width / config.patch)];
    const cells = Array.from({ length: rows * columns }, (_, i) => `${Math.floor(i / columns) + 1},${(i % columns) + 1}`);
    return ["<S>", ...cells];
  },
});
