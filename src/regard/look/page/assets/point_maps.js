// Points in space with a map of their tokens over them: drag to turn, click a point to see its own map. All
// drawings of one cloud on a page turn and zoom together.
const LARGEST_SPACE = 420; // pixels
const SMALL_SPACE = 72;
const [NEAREST_ZOOM, FARTHEST_ZOOM] = [8, 0.5];
const clouds = new Map(); // by their points: how a cloud is turned, and what draws it

// A point as it is seen: right, up, towards the reader.
function seenFrom([x, y, z], turn, tilt) {
  const [ct, st, ck, sk] = [Math.cos(turn), Math.sin(turn), Math.cos(tilt), Math.sin(tilt)];
  const back = ct * z - st * x;
  return [ct * x + st * z, ck * y - sk * back, sk * y + ck * back];
}

// Where seen points are on a canvas that they fill, and how near each is, 0 to 1. A `scale` is kept if all fit.
function fitOf(seen, width, height, margin, scale = Infinity) {
  const [low, high] = [[], []];
  for (const axis of [0, 1, 2]) {
    low.push(seen.reduce((a, p) => Math.min(a, p[axis]), Infinity));
    high.push(seen.reduce((a, p) => Math.max(a, p[axis]), -Infinity));
  }
  const size = Math.min(scale, (width - 2 * margin) / (high[0] - low[0] || 1e-9), (height - 2 * margin) / (high[1] - low[1] || 1e-9));
  const kept = Number.isFinite(size) && size < 1e8 ? size : 1;
  const middle = [0, 1].map((axis) => (low[axis] + high[axis]) / 2);
  return {
    scale: kept,
    zoomed: (zoom) => (p) => [width / 2 + zoom * kept * (p[0] - middle[0]), height / 2 - zoom * kept * (p[1] - middle[1])],
    at: (p) => [width / 2 + kept * (p[0] - middle[0]), height / 2 - kept * (p[1] - middle[1])],
    near: (p) => (high[2] > low[2] ? (p[2] - low[2]) / (high[2] - low[2]) : 1),
  };
}

function cloudOf(data, flat) {
  const key = JSON.stringify(data.points);
  if (!clouds.has(key)) clouds.set(key, { turn: flat ? 0 : 0.6, tilt: flat ? 0 : 0.5, zoom: 1, drawings: [] });
  return clouds.get(key);
}

function drawAxes(context, size, cloud, flat) {
  const [x, y, length] = [26, size - 26, 18];
  context.font = "10px system-ui, sans-serif";
  [context.textAlign, context.textBaseline, context.lineWidth] = ["center", "middle", 1];
  [context.strokeStyle, context.fillStyle] = [css("--muted"), css("--muted")];
  for (const [axis, name] of ["x", "y", "z"].slice(0, flat ? 2 : 3).entries()) {
    const [right, up] = seenFrom([0, 1, 2].map((i) => Number(i === axis)), cloud.turn, cloud.tilt);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + length * right, y - length * up);
    context.stroke();
    if (Math.hypot(right, up) > 0.2) context.fillText(name, x + (length + 7) * right, y - (length + 7) * up);
  }
}

renderers["point-maps"] = (data) => {
  const table = unpack(data.points);
  const points = Array.from({ length: table.shape[0] }, (_, i) => [0, 1, 2].map((axis) => table.get(3 * i + axis)));
  const maps = unpack(data.maps);
  const aside = data.aside && unpack(data.aside);
  const [count, queries, tokens] = maps.shape;
  const total = points.length;
  const marker = queries === tokens + 1 ? 1 : 0; // rows before those of the tokens
  const names = data.names.map(label);
  const flat = points.every((p) => p[2] === points[0][2]);
  const cloud = cloudOf(data, flat);
  let [chosen, query] = [0, 0];
  const value = (map, token) => maps.get((map * queries + (queries > 1 ? query : 0)) * tokens + token);
  const colours = data.scale === "diverging" ? "diverging" : "sequential";
  const domain = (map) => {
    let reach = 0;
    for (let t = 0; t < tokens; t++) reach = Math.max(reach, Math.abs(value(map, t)));
    return [colours === "diverging" ? -(reach || 1) : 0, reach || 1];
  };
  const first = fitOf(points.map((p) => seenFrom(p, cloud.turn, cloud.tilt)), 1, 1, 0).scale; // of a canvas of one pixel
  // Every point as it is seen, the farthest first: [x, y, nearness, number].
  const seen = (size, margin) => {
    const turned = points.map((p) => seenFrom(p, cloud.turn, cloud.tilt));
    const fit = fitOf(turned, size, size, margin, first * (size - 2 * margin));
    const at = fit.zoomed(cloud.zoom);
    return turned.map((p, i) => [...at(p), fit.near(p), i]).sort((a, b) => a[2] - b[2]);
  };
  const paint = (context, size, map, dot, margin) => {
    const scale = scaleOf(colours, domain(map), colours === "sequential");
    for (const [x, y, near, i] of seen(size, margin)) {
      const [radius, mine] = [dot * (0.75 + 0.45 * near) * Math.sqrt(cloud.zoom), queries > 1 && data.owners[i] === query - marker];
      context.globalAlpha = 0.45 + 0.55 * near; // what is far is fainter and smaller
      const disc = (style, r) => {
        context.fillStyle = style;
        context.beginPath();
        context.arc(x, y, r, 0, 2 * Math.PI);
        context.fill();
      };
      disc(css(mine ? "--mark" : "--muted"), radius + (mine ? 2.5 : dot > 3 ? 1 : 0.5)); // a rim: values near zero are seen too
      disc(rgb(scale(value(map, data.owners[i]))), radius);
      if (dot > 8 && data.kinds.length) {
        context.fillStyle = inkOn(scale(value(map, data.owners[i])));
        context.font = `${Math.round(1.1 * dot)}px sans-serif`;
        [context.textAlign, context.textBaseline] = ["center", "middle"];
        context.fillText(label(data.kinds[i]), x, y);
      }
    }
    context.globalAlpha = 1;
  };
  const [box, canvas] = [el("div", { class: "view" }), el("canvas", { tabindex: 0, role: "img", style: "touch-action: pan-y; cursor: grab" })];
  const [readout, key] = [el("p", { class: "readout", role: "status" }), el("div")];
  const called = (i) => [data.kinds.length ? label(data.kinds[i]) : "", `token ${data.owners[i] + 1}`].filter(Boolean).join(", ");
  let size = LARGEST_SPACE;
  const dots = () => clamp((size / 5) / Math.sqrt(total), 3, 11);

  const draw = () => {
    size = Math.min(LARGEST_SPACE, box.clientWidth || LARGEST_SPACE);
    const context = canvasOf(canvas, size, size);
    paint(context, size, chosen, dots(), dots() + 8);
    drawAxes(context, size, cloud, flat);
    const place = query - marker;
    const who = queries === 1 ? "" : `what ${place < 0 ? "<S>" : `token ${place + 1}`} looks at`;
    const rest = aside ? `; ${percent(aside.get(chosen * queries + (queries > 1 ? query : 0)))} goes to <S>` : "";
    const hint = `${queries > 1 ? ". Click a point to see what it looks at; drag" : ". Drag"} to turn, + and − to zoom.`;
    readout.textContent = ([count > 1 ? names[chosen] : "", who].filter(Boolean).join(": ") + rest + hint).replace(/^[;.] /, "");
    key.replaceChildren(colourBar(colours, ...domain(chosen), label(data.unit)));
    canvas.setAttribute("aria-label", `${label(data.title) || "points"}: ${readout.textContent}`);
    thumbs.forEach((thumb, i) => {
      const small = el("canvas", { "aria-hidden": "true" });
      paint(canvasOf(small, SMALL_SPACE, SMALL_SPACE), SMALL_SPACE, i, 1.8, 5);
      thumb.replaceChildren(small);
      thumb.setAttribute("aria-pressed", String(i === chosen));
    });
    whole && whole.setAttribute("aria-pressed", String(query === 0));
  };
  cloud.drawings.push(draw);
  const drawAll = () => cloud.drawings.forEach((one) => one());
  const zoomBy = (factor) => {
    cloud.zoom = clamp(cloud.zoom * factor, FARTHEST_ZOOM, NEAREST_ZOOM);
    drawAll();
  };
  const turnBy = (dx, dy) => {
    [cloud.turn, cloud.tilt] = [cloud.turn + dx, clamp(cloud.tilt + dy, -Math.PI / 2, Math.PI / 2)];
    drawAll();
  };
  const nearest = (event) => {
    const edge = canvas.getBoundingClientRect();
    let [best, least] = [0, Infinity];
    for (const [x, y, near, i] of seen(size, dots() + 8)) {
      const gap = Math.hypot(x - event.clientX + edge.left, y - event.clientY + edge.top) - 3 * near; // of equals, the one in front
      if (gap < least) [best, least] = [i, gap];
    }
    return best;
  };
  let [held, moved] = [null, 0];
  canvas.addEventListener("pointerdown", (event) => {
    [held, moved] = [[event.clientX, event.clientY], 0];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) {
      const i = nearest(event);
      showTip([`${format(value(chosen, data.owners[i]))} ${label(data.unit)}`, called(i)], event.clientX, event.clientY);
      return;
    }
    hideTip();
    const [dx, dy] = [event.clientX - held[0], event.clientY - held[1]];
    moved += Math.abs(dx) + Math.abs(dy);
    held = [event.clientX, event.clientY];
    turnBy(dx / 120, dy / 120);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (held && moved < 4 && queries > 1) query = marker + data.owners[nearest(event)];
    held = null;
    draw();
  });
  canvas.addEventListener("pointercancel", () => (held = null));
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return; // else the page scrolls
    event.preventDefault();
    zoomBy(event.deltaY < 0 ? 1.1 : 1 / 1.1);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const zoom = { "+": 1.2, "=": 1.2, "-": 1 / 1.2 }[event.key];
    if (!(event.key in ARROWS) && !zoom) return;
    event.preventDefault();
    zoom ? zoomBy(zoom) : turnBy(ARROWS[event.key][0] / 8, ARROWS[event.key][1] / 8);
  });
  const whole = marker && el("button", { type: "button", "aria-pressed": "true", click: () => { query = 0; draw(); } }, "<S>");
  const style = `width:${SMALL_SPACE}px;height:${SMALL_SPACE}px`;
  const thumbs = count === 1 ? [] : names.map((name, i) =>
    withTip(el("button", { class: "thumb", type: "button", "aria-label": name, style, click: () => { chosen = i; draw(); } }), () => [name]));
  const zooms = el("div", { class: "toggle", role: "group", "aria-label": "zoom" }, el("button", { type: "button", "aria-label": "larger", click: () => zoomBy(1.25) }, "+"), el("button", { type: "button", "aria-label": "smaller", click: () => zoomBy(0.8) }, "−"));
  box.append(el("div", { class: "toolbar" }, whole ? el("div", { class: "toggle" }, whole) : null, zooms), canvas, key, readout);
  onWidth(box, draw);
  return [heading(data.title), el("div", { class: "split" }, box, thumbs.length ? mapGrid(data, thumbs, SMALL_SPACE) : null)];
};
