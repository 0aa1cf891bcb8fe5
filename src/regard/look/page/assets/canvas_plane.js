// Points of a plane or of space on a canvas: enlarged by the wheel or + and −, moved by a drag, turned where there
// are three dimensions, circled by a lasso, read and chosen by keys. The names of points are text above the canvas.
const [CLOSEST, NAME_HEIGHT, MOST_ZOOM] = [24, 14, 60]; // pixels, pixels, times
const [MOST_NAMES, TRIED_NAMES, FEW_POINTS] = [100, 400, 60]; // names shown, tried, and points in view that all have one
const LONGEST_NAME = 28; // characters
const MOVING = 300; // milliseconds in which points move
const [DOT, STRONG_DOT] = [3, 5]; // radii
const SHAPES = 4; // disc, square, triangle, diamond: for more groups than there are colours

// A small image of a point, which is fast to draw many times.
function dotSprite(colour, radius, shape, ring) {
  const scale = window.devicePixelRatio || 1;
  const side = 2 * radius + 4;
  const canvas = el("canvas", { width: Math.ceil(side * scale), height: Math.ceil(side * scale) });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.translate(side / 2, side / 2);
  context.beginPath();
  const r = radius * [1, 0.9, 1.2, 1.2][shape % SHAPES];
  if (shape % SHAPES === 0) context.arc(0, 0, r, 0, 2 * Math.PI);
  else if (shape % SHAPES === 1) context.rect(-r, -r, 2 * r, 2 * r);
  else for (const [x, y] of shape % SHAPES === 2 ? [[0, -r], [r, 0.8 * r], [-r, 0.8 * r]] : [[0, -r], [r, 0], [0, r], [-r, 0]]) context.lineTo(x, y);
  context.closePath();
  context.fillStyle = colour;
  context.fill();
  if (ring) {
    context.strokeStyle = ring;
    context.lineWidth = 1.6;
    context.stroke();
  }
  return { canvas, side };
}

// The pixels of such an image that are not empty, as places around its middle and bytes.
function stampOf({ canvas }, alpha) {
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const filled = Array.from({ length: width * height }, (_, k) => k).filter((k) => data[4 * k + 3]);
  return {
    xs: Int16Array.from(filled, (k) => (k % width) - (width >> 1)), ys: Int16Array.from(filled, (k) => Math.floor(k / width) - (height >> 1)),
    colours: Uint8Array.from(filled.flatMap((k) => [...data.subarray(4 * k, 4 * k + 3)])), alphas: Float32Array.from(filled, (k) => (alpha * data[4 * k + 3]) / 255),
  };
}

// Paint a stamp over an image, as a canvas would: thousands of them take milliseconds this way.
function stamp(image, { xs, ys, colours, alphas }, x, y) {
  const { data, width, height } = image;
  for (let k = 0; k < xs.length; k++) {
    const [column, row] = [x + xs[k], y + ys[k]];
    if (column < 0 || row < 0 || column >= width || row >= height) continue;
    const at = 4 * (row * width + column);
    const under = (data[at + 3] / 255) * (1 - alphas[k]);
    const over = alphas[k] + under;
    for (let c = 0; c < 3; c++) data[at + c] = (colours[3 * k + c] * alphas[k] + data[at + c] * under) / over;
    data[at + 3] = 255 * over;
  }
}

// Whether a point is inside a polygon: a ray from it crosses the border an odd number of times.
function insidePolygon(x, y, corners) {
  let inside = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
    const [[ax, ay], [bx, by]] = [corners[i], corners[j]];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

// Points in a box around 0 whose longest side is 1; `all` are the points that it must hold.
function centred(points, dimensions, all = points) {
  const count = points.length / dimensions;
  const ends = Array.from({ length: dimensions }, () => [Infinity, -Infinity]);
  for (let i = 0; i < all.length; i++) {
    const end = ends[i % dimensions];
    end[0] = Math.min(end[0], all[i]);
    end[1] = Math.max(end[1], all[i]);
  }
  const longest = Math.max(...ends.map(([low, high]) => high - low)) || 1;
  return Float32Array.from({ length: count * dimensions }, (_, i) => (points[i] - (ends[i % dimensions][0] + ends[i % dimensions][1]) / 2) / longest);
}

/* `points` are flat: `dimensions` numbers each. `choose(i)` is called for a click or Enter, `circle(indices)` for a
   lasso, `walk(i)` where arrow keys go; `lines(i)` is the read-out. `update` changes what is seen: the `palette`, asked
   for whenever something is drawn, the `code` of each point in it and its `shape`, the chosen point, marked, found and
   selected ones, those hidden, and which are always named. `move` takes the points to other places of the box, which
   `all` of them then fill. */
function canvasPlane({ points, all = points, dimensions = 2, names, title = "", choose = () => {}, circle = null, walk = () => {}, lines = (i) => [names[i]] }) {
  let at = centred(points, dimensions, all);
  const count = at.length / dimensions;
  const view = { zoom: 1, x: 0, y: 0, turn: 0.6, tilt: 0.4, lasso: false };
  let seen = { palette: () => [css("--accent")], code: () => 0, shape: () => 0, chosen: -1, marked: [], found: new Set(), selected: new Set(), hidden: () => false, always: [], nameAll: true };
  const [xs, ys, depth] = [new Float32Array(count), new Float32Array(count), new Float32Array(count)];
  let [size, drag, cursor, waiting, sprites, trail, colours, alpha, image] = [[1, 1], null, -1, 0, new Map(), [], [], 1, null];
  const canvas = el("canvas", { tabindex: 0, role: "application" });
  const labels = el("div", { class: "names", "aria-hidden": "true" });
  const told = el("p", { class: "unseen", role: "status" });
  const box = el("div", { class: "plane" }, canvas, labels, told);
  const widths = new Map();
  const short = names.map((name) => (name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name));

  const locate = () => {
    const scale = 0.92 * Math.min(...size) * view.zoom;
    const [sin, cos, up, out] = [Math.sin(view.turn), Math.cos(view.turn), Math.sin(view.tilt), Math.cos(view.tilt)];
    for (let i = 0; i < count; i++) {
      let [x, y, z] = [at[i * dimensions], at[i * dimensions + 1], 0];
      if (dimensions === 3) {
        const w = at[i * 3 + 2];
        [x, z] = [x * cos + w * sin, w * cos - x * sin];
        [y, z] = [y * out - z * up, z * out + y * up];
      }
      xs[i] = size[0] / 2 + scale * (x - view.x);
      ys[i] = size[1] / 2 - scale * (y - view.y);
      depth[i] = z;
    }
  };
  const visibleAt = (i) => xs[i] >= 0 && ys[i] >= 0 && xs[i] <= size[0] && ys[i] <= size[1] && !seen.hidden(i);
  const sprite = (i, strong) => {
    const [code, shape] = [seen.code(i), seen.shape(i)];
    const key = 8 * code + 2 * (shape % SHAPES) + strong;
    if (!sprites.has(key)) {
      const made = dotSprite(colours[code], strong ? STRONG_DOT : DOT, shape, strong ? css("--ink") : "");
      sprites.set(key, strong ? made : stampOf(made, alpha));
    }
    return sprites.get(key);
  };
  const strongOnes = () => new Set([...seen.marked, ...seen.found, ...seen.selected, ...seen.always, seen.chosen, cursor].filter((i) => i >= 0 && i < count && !seen.hidden(i)));

  const draw = () => {
    waiting = 0;
    if (!image) return; // not yet on the page
    locate();
    const strong = strongOnes();
    const [palette, dim] = [seen.palette(), seen.selected.size || seen.found.size ? 0.3 : count > 4000 ? 0.7 : 0.9];
    if (palette.join() !== colours.join() || dim !== alpha) [colours, alpha, sprites] = [palette, dim, new Map()];
    const order = [];
    for (let i = 0; i < count; i++) if (visibleAt(i) && !strong.has(i)) order.push(i);
    const painted = dimensions === 3 ? [...order].sort((a, b) => depth[a] - depth[b]) : order; // the nearest last
    const context = canvas.getContext("2d");
    const scale = canvas.width / size[0];
    image.data.fill(0);
    for (const i of painted) stamp(image, sprite(i, false), Math.round(xs[i] * scale), Math.round(ys[i] * scale));
    context.putImageData(image, 0, 0);
    for (const i of strong) {
      const { canvas: dot, side } = sprite(i, true);
      context.drawImage(dot, xs[i] - side / 2, ys[i] - side / 2, side, side);
    }
    for (const [i, radius] of [[seen.chosen, 9], [cursor, 12]]) {
      if (i < 0 || !visibleAt(i)) continue;
      context.strokeStyle = css("--ink");
      context.lineWidth = 2;
      context.beginPath();
      context.arc(xs[i], ys[i], radius, 0, 2 * Math.PI);
      context.stroke();
    }
    drawTrail(context);
    drawNames(strong, order);
    canvas.setAttribute("aria-label", `${label(title) || "points"}: ${format(count)} points; arrows move to the next point, Enter chooses, plus and minus enlarge${dimensions === 3 ? ", Shift with arrows turns" : ""}${circle ? ", Space selects" : ""}`);
  };
  const drawTrail = (context) => {
    if (trail.length < 2) return;
    context.beginPath();
    trail.forEach(([x, y]) => context.lineTo(x, y));
    context.closePath();
    context.fillStyle = css("--accent-soft");
    context.globalAlpha = 0.4;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = css("--accent");
    context.stroke();
  };
  // Names in the order of their importance, each only where it covers no other.
  const drawNames = (strong, others) => {
    const taken = [];
    const free = (left, top, wide) => !taken.some(([l, t, w]) => left < l + w && left + wide > l && Math.abs(top - t) < NAME_HEIGHT);
    const must = new Set([seen.chosen, cursor, ...seen.always]);
    const first = [...must, ...seen.marked, ...seen.found, ...seen.selected].filter((i) => strong.has(i));
    const rest = seen.nameAll || others.length <= FEW_POINTS ? others.slice(0, TRIED_NAMES) : []; // the first are the most frequent
    const spans = [];
    for (const i of new Set([...first, ...rest])) {
      if (spans.length >= MOST_NAMES) break;
      if (!visibleAt(i)) continue;
      const wide = widthOf(short[i]) + 6;
      const options = [[xs[i] + 8, ys[i]], [xs[i] - 8 - wide, ys[i]], [xs[i] - wide / 2, ys[i] - 14], [xs[i] - wide / 2, ys[i] + 14]]
        .filter(([left, top]) => left >= 0 && left + wide <= size[0] && top > 7 && top < size[1] - 7);
      const fit = options.find(([left, top]) => free(left, top, wide)) ?? (must.has(i) ? options[0] : null);
      if (!fit) continue;
      taken.push([...fit, wide]);
      spans.push([i, fit]);
    }
    while (labels.childElementCount < spans.length) labels.append(el("span", {}));
    while (labels.childElementCount > spans.length) labels.lastElementChild.remove();
    spans.forEach(([i, [left, top]], k) => {
      const span = labels.children[k];
      const kind = strong.has(i) ? "dot-name" : "dot-name quiet";
      if (span.className !== kind) span.className = kind;
      if (span.textContent !== short[i]) span.textContent = short[i];
      span.style.transform = `translate(${(left + 3).toFixed(1)}px, ${(top - NAME_HEIGHT / 2 - 2).toFixed(1)}px)`;
    });
  };
  const ruler = document.createElement("canvas").getContext("2d");
  const widthOf = (text) => {
    if (!widths.has(text)) {
      ruler.font = `600 12px ${css("--sans")}`;
      widths.set(text, ruler.measureText(text).width);
    }
    return widths.get(text);
  };
  const again = () => {
    if (!waiting) waiting = requestAnimationFrame(draw);
  };
  const now = () => {
    cancelAnimationFrame(waiting);
    if (box.clientWidth) draw();
  };

  let moving = 0;
  const move = (next) => {
    cancelAnimationFrame(moving);
    const [from, to, began] = [at, centred(next, dimensions, all), performance.now()];
    const step = (time) => {
      const part = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1 : clamp((time - began) / MOVING, 0, 1);
      at = part < 1 ? from.map((place, i) => place + part * (to[i] - place)) : to;
      now();
      if (part < 1) moving = requestAnimationFrame(step);
    };
    moving = requestAnimationFrame(step);
  };

  const keep = () => {
    const room = 0.75;
    [view.x, view.y] = [clamp(view.x, -room, room), clamp(view.y, -room, room)];
  };
  const zoom = (factor, [x, y] = [size[0] / 2, size[1] / 2]) => {
    const next = clamp(view.zoom * factor, 1, MOST_ZOOM);
    const unit = 0.92 * Math.min(...size);
    const shift = (1 / view.zoom - 1 / next) / unit;
    view.x += (x - size[0] / 2) * shift;
    view.y -= (y - size[1] / 2) * shift;
    view.zoom = next;
    if (next === 1) [view.x, view.y] = [0, 0];
    keep();
    canvas.style.touchAction = next > 1 || view.lasso ? "none" : "auto"; // a finger moves what is enlarged
    again();
  };
  const show = (i) => { // move so that this point is inside
    if (i < 0 || i >= count || !colours.length) return; // not yet drawn
    locate();
    if (xs[i] > 20 && ys[i] > 20 && xs[i] < size[0] - 20 && ys[i] < size[1] - 20) return;
    const unit = 0.92 * Math.min(...size) * view.zoom;
    view.x += (xs[i] - size[0] / 2) / unit;
    view.y -= (ys[i] - size[1] / 2) / unit;
    keep();
  };
  const nearest = (x, y) => {
    let [best, least] = [-1, CLOSEST];
    for (let i = 0; i < count; i++) {
      const far = Math.hypot(xs[i] - x, ys[i] - y);
      if (far < least && !seen.hidden(i)) [best, least] = [i, far];
    }
    return best;
  };
  const here = (event) => {
    const edge = canvas.getBoundingClientRect();
    return [event.clientX - edge.left, event.clientY - edge.top];
  };
  const meant = (event) => nearest(...here(event));
  // The nearest point in the direction of an arrow key: what lies aside counts twice.
  const toward = ([dx, dy]) => {
    const from = cursor >= 0 ? cursor : seen.chosen;
    const [x, y] = from >= 0 ? [xs[from], ys[from]] : [size[0] / 2, size[1] / 2];
    let [best, least] = [-1, Infinity];
    for (let i = 0; i < count; i++) {
      const along = (xs[i] - x) * dx + (ys[i] - y) * dy;
      const cost = along + 2 * (Math.abs((xs[i] - x) * dy) + Math.abs((ys[i] - y) * dx));
      if (along > 0.5 && cost < least && !seen.hidden(i)) [best, least] = [i, cost];
    }
    return best;
  };
  const read = (i) => {
    const edge = canvas.getBoundingClientRect();
    showTip(lines(i), edge.left + xs[i], edge.top + ys[i]);
    told.textContent = lines(i).join(", ");
  };
  const turn = (dx, dy) => {
    view.turn += dx;
    view.tilt = clamp(view.tilt + dy, -1.5, 1.5);
    again();
  };
  const select = (indices, more) => circle(more ? [...new Set([...seen.selected, ...indices])] : indices);
  const finishLasso = (more) => {
    const inside = [];
    for (let i = 0; i < count; i++) if (!seen.hidden(i) && insidePolygon(xs[i], ys[i], trail)) inside.push(i);
    trail = [];
    select(inside, more);
    again();
  };

  canvas.addEventListener("pointermove", (event) => {
    if (drag) return;
    const i = meant(event);
    i >= 0 ? showTip(lines(i), event.clientX, event.clientY) : hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && view.zoom === 1 && event.deltaY > 0) return; // the page scrolls
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, here(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    const lasso = Boolean(circle) && (view.lasso || event.shiftKey);
    drag = { x: event.clientX, y: event.clientY, moved: false, lasso, from: { ...view } };
    if (lasso) trail = [here(event)];
    canvas.setPointerCapture(event.pointerId);
    hideTip();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag || !event.buttons) return;
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    if (drag.lasso) trail.push(here(event));
    else if (dimensions === 3 && !event.altKey) [view.turn, view.tilt] = [drag.from.turn + dx / 150, clamp(drag.from.tilt + dy / 150, -1.5, 1.5)];
    else {
      const unit = 0.92 * Math.min(...size) * view.zoom;
      [view.x, view.y] = [drag.from.x - dx / unit, drag.from.y + dy / unit];
      keep();
    }
    again();
  });
  canvas.addEventListener("pointerup", (event) => {
    const { moved = false, lasso = false } = drag ?? {};
    drag = null;
    if (moved && lasso) return finishLasso(event.ctrlKey || event.metaKey);
    const i = meant(event);
    if (!moved && i >= 0) {
      cursor = -1;
      choose(i);
    }
  });
  canvas.addEventListener("pointercancel", () => ([drag, trail] = [null, []]));
  canvas.addEventListener("keydown", (event) => {
    const factor = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, 0: 1 / MOST_ZOOM }[event.key];
    const arrow = ARROWS[event.key];
    if (event.key === "Enter" && cursor >= 0) choose(cursor);
    else if (event.key === " " && circle && cursor >= 0) select(seen.selected.has(cursor) ? [...seen.selected].filter((i) => i !== cursor) : [...seen.selected, cursor], false);
    else if (factor) zoom(factor, cursor >= 0 ? [xs[cursor], ys[cursor]] : undefined);
    else if (arrow && event.shiftKey && dimensions === 3) turn(0.15 * arrow[0], 0.15 * arrow[1]);
    else if (arrow) {
      const next = toward(arrow);
      if (next >= 0) {
        cursor = next;
        show(next);
        walk(next);
        now();
        read(next);
      }
    } else return;
    event.preventDefault();
  });
  canvas.addEventListener("blur", () => {
    cursor = -1;
    hideTip();
    again();
  });
  onWidth(box, (width) => {
    size = [width, clamp(width * 0.72, 280, 620)];
    canvasOf(canvas, ...size);
    image = new ImageData(canvas.width, canvas.height);
    sprites = new Map(); // the ink may have changed
    draw();
  });
  const button = (text, name, click) => el("button", { type: "button", "aria-label": name, click }, text);
  const lasso = circle && el("button", { type: "button", "aria-pressed": "false", click: () => {
    view.lasso = !view.lasso;
    lasso.setAttribute("aria-pressed", String(view.lasso));
    canvas.classList.toggle("lasso", view.lasso);
    canvas.style.touchAction = view.zoom > 1 || view.lasso ? "none" : "auto";
  } }, "lasso");
  const tools = el("span", { class: "zoom" }, button("−", "smaller", () => zoom(1 / 1.5)), button("+", "larger", () => zoom(1.5)),
    button("all", "all points", () => zoom(1 / MOST_ZOOM)),
    ...(dimensions === 3 ? [button("⟲", "turn left", () => turn(-0.3, 0)), button("⟳", "turn right", () => turn(0.3, 0))] : []), ...(lasso ? [lasso] : []));
  const update = (change) => {
    seen = { ...seen, ...change };
    again();
  };
  box.plane = { places: () => Array.from({ length: count }, (_, i) => [xs[i], ys[i]]), seen: () => seen, view, draw: now };
  return { box, tools, update, show, again, move };
}
