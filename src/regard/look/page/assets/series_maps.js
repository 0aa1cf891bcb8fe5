// A series with a map of its patches behind it; a chosen patch shows its own map, small ones choose which.
const LARGEST_SERIES = 760; // pixels
const ROW_OF_SERIES = 130;

renderers["series-maps"] = (data) => {
  const maps = unpack(data.maps);
  const aside = data.aside && unpack(data.aside);
  const [count, queries, tokens] = maps.shape;
  const marker = queries === tokens + 1 ? 1 : 0; // rows before those of the tokens
  const names = data.names.map(label);
  const steps = data.owners.length;
  let [chosen, query] = [0, 0];
  const value = (map, token) => maps.get((map * queries + (queries > 1 ? query : 0)) * tokens + token);
  const colours = data.scale === "diverging" ? "diverging" : "sequential";
  const domain = (map) => {
    let reach = 0;
    for (let t = 0; t < tokens; t++) reach = Math.max(reach, Math.abs(value(map, t)));
    return [colours === "diverging" ? -(reach || 1) : 0, reach || 1];
  };
  const paint = (context, width, height, map, line) => {
    const scale = scaleOf(colours, domain(map), colours === "sequential");
    for (let t = 0; t < steps; t++) {
      context.fillStyle = rgb(scale(value(map, data.owners[t])));
      context.fillRect((t * width) / steps, 0, width / steps + 0.6, height);
    }
    const each = height / data.values.length;
    data.values.forEach((row, c) => {
      const known = row.filter((x) => typeof x === "number");
      const [low, high] = [Math.min(...known), Math.max(...known)];
      const y = (x) => (c + 0.92 - 0.84 * (high > low ? (x - low) / (high - low) : 0.5)) * each;
      context.lineJoin = "round";
      for (const [style, thickness] of [[css("--paper") || "#fff", line + 2], [css("--ink") || "#111", line]]) {
        [context.strokeStyle, context.lineWidth] = [style, thickness];
        context.beginPath();
        let open = false;
        row.forEach((x, t) => {
          if (typeof x !== "number") { open = false; return; }
          const place = ((t + 0.5) * width) / steps;
          open ? context.lineTo(place, y(x)) : context.moveTo(place, y(x));
          open = true;
        });
        context.stroke();
      }
      if (line < 1) return; // small views have no words
      context.font = "11px system-ui, sans-serif";
      [context.textAlign, context.textBaseline, context.lineWidth] = ["left", "top", 4];
      [context.strokeStyle, context.fillStyle] = [css("--paper"), css("--ink")];
      const words = `${label(data.columns[c])}, ${format(low, 3)} to ${format(high, 3)}`;
      context.strokeText(words, 6, c * each + 5);
      context.fillText(words, 6, c * each + 5);
    });
  };
  const [box, canvas] = [el("div", { class: "view" }), el("canvas", { tabindex: 0, role: "img" })];
  const [readout, key] = [el("p", { class: "readout", role: "status" }), el("div")];
  const height = ROW_OF_SERIES * Math.min(4, data.values.length);
  let width = LARGEST_SERIES;

  const span = (token) => {
    const [first, last] = [data.owners.indexOf(token), data.owners.lastIndexOf(token)];
    return first === last ? `step ${first + 1}` : `steps ${first + 1} to ${last + 1}`;
  };
  const draw = () => {
    width = Math.min(LARGEST_SERIES, box.clientWidth || LARGEST_SERIES);
    ticks.style.width = `${width}px`;
    const context = canvasOf(canvas, width, height);
    paint(context, width, height, chosen, 1.5);
    const place = query - marker;
    if (queries > 1 && place >= 0) {
      const [first, last] = [data.owners.indexOf(place), data.owners.lastIndexOf(place)];
      [context.strokeStyle, context.lineWidth] = [css("--mark"), 3];
      context.strokeRect((first * width) / steps, 1.5, ((last - first + 1) * width) / steps, height - 3);
    }
    const who = queries === 1 ? "" : `what ${place < 0 ? "<S>" : span(place)} looks at`;
    const rest = aside ? `; ${percent(aside.get(chosen * queries + (queries > 1 ? query : 0)))} goes to <S>` : "";
    const hint = queries > 1 ? ". Click a patch to see what it looks at." : "";
    const columns = data.columns.length > 1 ? `${data.columns.map(label).join(", ")}, from above` : "";
    const said = [columns, count > 1 ? names[chosen] : "", who].filter(Boolean).join(": ");
    readout.textContent = (said + rest + hint).replace(/^[;.] /, "");
    key.replaceChildren(colourBar(colours, ...domain(chosen), label(data.unit)));
    canvas.setAttribute("aria-label", `${label(data.title) || "series"}: ${readout.textContent}`);
    thumbs.forEach((thumb, i) => {
      const small = el("canvas", { "aria-hidden": "true" });
      paint(canvasOf(small, size, 40), size, 40, i, 0.5);
      thumb.replaceChildren(small);
      thumb.setAttribute("aria-pressed", String(i === chosen));
    });
    whole && whole.setAttribute("aria-pressed", String(query === 0));
  };
  const stepAt = (event) => {
    const edge = canvas.getBoundingClientRect();
    return clamp(Math.floor(((event.clientX - edge.left) / width) * steps), 0, steps - 1);
  };
  const choose = (token) => {
    if (queries === 1) return;
    query = marker + clamp(token, 0, tokens - 1);
    draw();
  };
  canvas.addEventListener("pointermove", (event) => {
    const step = stepAt(event);
    const token = data.owners[step];
    const values = data.values.map((row, c) => `${label(data.columns[c])} ${typeof row[step] === "number" ? format(row[step]) : "missing"}`);
    showTip([`${format(value(chosen, token))} ${label(data.unit)}`, span(token), ...values.slice(0, 4)], event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", (event) => choose(data.owners[stepAt(event)]));
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in ARROWS) || queries === 1) return;
    event.preventDefault();
    choose(Math.max(0, query - marker) + ARROWS[event.key][0]);
  });
  const whole = marker && el("button", { type: "button", "aria-pressed": "true", click: () => { query = 0; draw(); } }, "<S>");
  const size = clamp(Math.floor(520 / data.across), 60, 150);
  const style = `width:${size}px;height:40px`;
  const thumbs = count === 1 ? [] : names.map((name, i) =>
    withTip(el("button", { class: "thumb", type: "button", "aria-label": name, style, click: () => { chosen = i; draw(); } }), () => [name]));
  const ticks = el("div", { class: "steps", "aria-hidden": "true" }, ...[0, 0.25, 0.5, 0.75, 1].map((part) => el("span", {}, `${part ? "" : "step "}${format(1 + Math.round(part * (steps - 1)))}`)));
  box.append(canvas, ticks, key, readout);
  if (whole) box.prepend(el("div", { class: "toolbar" }, el("div", { class: "toggle" }, whole)));
  onWidth(box, draw);
  return [heading(data.title), box, thumbs.length ? mapGrid(data, thumbs, size) : null];
};
