// Points in space with a map of their tokens over them: drag to turn, click a point to see its own map.
const LARGEST_SPACE = 380; // pixels
const SMALL_SPACE = 64;

renderers["point-maps"] = (data) => {
  const points = unpack(data.points);
  const maps = unpack(data.maps);
  const aside = data.aside && unpack(data.aside);
  const [count, queries, tokens] = maps.shape;
  const total = points.shape[0];
  const marker = queries === tokens + 1 ? 1 : 0; // rows before those of the tokens
  const names = data.names.map(label);
  const flat = Array.from({ length: total }, (_, i) => points.get(3 * i + 2)).every((z) => z === points.get(2));
  let radius = 0;
  for (let i = 0; i < total; i++) radius = Math.max(radius, Math.hypot(...[0, 1, 2].map((axis) => points.get(3 * i + axis))));
  let [chosen, query, turn, tilt] = [0, 0, flat ? 0 : 0.6, flat ? 0 : 0.5];
  const value = (map, token) => maps.get((map * queries + (queries > 1 ? query : 0)) * tokens + token);
  const colours = data.scale === "diverging" ? "diverging" : "sequential";
  const domain = (map) => {
    let reach = 0;
    for (let t = 0; t < tokens; t++) reach = Math.max(reach, Math.abs(value(map, t)));
    return [colours === "diverging" ? -(reach || 1) : 0, reach || 1];
  };
  // Every point as it is seen: [x, y, depth, number], the farthest first; x and y within ±1.
  const seen = () => {
    const [ct, st, ck, sk] = [Math.cos(turn), Math.sin(turn), Math.cos(tilt), Math.sin(tilt)];
    return Array.from({ length: total }, (_, i) => {
      const [x, y, z] = [0, 1, 2].map((axis) => points.get(3 * i + axis) / (radius || 1));
      const [right, back] = [ct * x + st * z, ct * z - st * x];
      return [right, ck * y - sk * back, sk * y + ck * back, i];
    }).sort((a, b) => a[2] - b[2]);
  };
  const paint = (context, size, map, dot) => {
    const scale = scaleOf(colours, domain(map), colours === "sequential");
    for (const [x, y, depth, i] of seen()) {
      const shade = rgb(scale(value(map, data.owners[i])));
      context.globalAlpha = 0.65 + 0.35 * clamp((depth + 1) / 2, 0, 1); // what is far is fainter
      context.fillStyle = shade;
      context.beginPath();
      context.arc((0.5 + 0.45 * x) * size, (0.5 - 0.45 * y) * size, dot * (1 + 0.25 * depth), 0, 2 * Math.PI);
      context.fill();
      if (dot > 3) {
        context.strokeStyle = data.owners[i] === query - marker && queries > 1 ? css("--mark") : css("--line");
        context.lineWidth = data.owners[i] === query - marker && queries > 1 ? 2.5 : 0.75;
        context.stroke();
      }
      if (dot > 8 && data.kinds.length) {
        context.fillStyle = inkOn(scale(value(map, data.owners[i])));
        context.font = `${Math.round(1.1 * dot)}px sans-serif`;
        [context.textAlign, context.textBaseline] = ["center", "middle"];
        context.fillText(label(data.kinds[i]), (0.5 + 0.45 * x) * size, (0.5 - 0.45 * y) * size);
      }
    }
    context.globalAlpha = 1;
  };
  const [box, canvas] = [el("div", { class: "view" }), el("canvas", { tabindex: 0, role: "img", style: "touch-action: none; cursor: grab" })];
  const [readout, key] = [el("p", { class: "readout", role: "status" }), el("div")];
  const called = (i) => [data.kinds.length ? label(data.kinds[i]) : "", `token ${data.owners[i] + 1}`].filter(Boolean).join(", ");
  let size = LARGEST_SPACE;

  const draw = () => {
    size = Math.min(LARGEST_SPACE, box.clientWidth || LARGEST_SPACE);
    paint(canvasOf(canvas, size, size), size, chosen, clamp(90 / Math.sqrt(total), 4, 11));
    const place = query - marker;
    const who = queries === 1 ? "" : `what ${place < 0 ? "<S>" : `token ${place + 1}`} looks at`;
    const rest = aside ? `; ${percent(aside.get(chosen * queries + (queries > 1 ? query : 0)))} goes to <S>` : "";
    const hint = `${queries > 1 ? ". Click a point to see what it looks at; drag" : ". Drag"} to turn.`;
    readout.textContent = ([count > 1 ? names[chosen] : "", who].filter(Boolean).join(": ") + rest + hint).replace(/^[;.] /, "");
    key.replaceChildren(colourBar(colours, ...domain(chosen), label(data.unit)));
    canvas.setAttribute("aria-label", `${label(data.title) || "points"}: ${readout.textContent}`);
    thumbs.forEach((thumb, i) => {
      const small = el("canvas", { "aria-hidden": "true" });
      paint(canvasOf(small, SMALL_SPACE, SMALL_SPACE), SMALL_SPACE, i, 2);
      thumb.replaceChildren(small);
      thumb.setAttribute("aria-pressed", String(i === chosen));
    });
    whole && whole.setAttribute("aria-pressed", String(query === 0));
  };
  const nearest = (event) => {
    const edge = canvas.getBoundingClientRect();
    const [x, y] = [((event.clientX - edge.left) / size - 0.5) / 0.45, (0.5 - (event.clientY - edge.top) / size) / 0.45];
    let [best, least] = [0, Infinity];
    for (const point of seen()) {
      const gap = Math.hypot(point[0] - x, point[1] - y) - 0.02 * point[2]; // of equals, the one in front
      if (gap < least) [best, least] = [point[3], gap];
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
    turn += dx / 120;
    tilt = clamp(tilt + dy / 120, -Math.PI / 2, Math.PI / 2);
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (held && moved < 4 && queries > 1) query = marker + data.owners[nearest(event)];
    held = null;
    draw();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in ARROWS)) return;
    event.preventDefault();
    const [dx, dy] = ARROWS[event.key];
    [turn, tilt] = [turn + dx / 8, clamp(tilt + dy / 8, -Math.PI / 2, Math.PI / 2)];
    draw();
  });
  const whole = marker && el("button", { type: "button", "aria-pressed": "true", click: () => { query = 0; draw(); } }, "<S>");
  const style = `width:${SMALL_SPACE}px;height:${SMALL_SPACE}px`;
  const thumbs = count === 1 ? [] : names.map((name, i) =>
    withTip(el("button", { class: "thumb", type: "button", "aria-label": name, style, click: () => { chosen = i; draw(); } }), () => [name]));
  const grid = el("div", { class: "heads", role: "group", "aria-label": "maps", style: `grid-template-columns: repeat(${data.across}, ${SMALL_SPACE}px)` }, ...thumbs);
  rove(grid, thumbs, (thumb, dx, dy) => thumbs[thumbs.indexOf(thumb) + dx + dy * data.across]);
  box.append(canvas, key, readout);
  if (whole) box.prepend(el("div", { class: "toolbar" }, el("div", { class: "toggle" }, whole)));
  onWidth(box, draw);
  return [heading(data.title), el("div", { class: "split" }, box, thumbs.length ? grid : null)];
};
