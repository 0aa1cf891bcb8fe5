// An image with a map of its patches over it; a chosen patch shows its own map, small ones choose which.
const LARGEST_IMAGE = 380; // pixels

function pixelsOf(data) {
  const [height, width, channels] = data.size;
  const codes = decode(data.pixels);
  const canvas = el("canvas", { width, height });
  const image = canvas.getContext("2d").createImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = codes[i * channels + (channels === 3 ? c : 0)];
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

renderers["image-maps"] = (data) => {
  const maps = unpack(data.maps);
  const aside = data.aside && unpack(data.aside);
  const [count, queries, patches] = maps.shape;
  const [rows, columns] = data.grid;
  const image = pixelsOf(data);
  const marker = queries === patches + 1 ? 1 : 0; // rows before those of the patches
  const names = data.names.map(label);
  let [chosen, query] = [0, 0];
  const at = (map, q) => {
    const offset = (map * queries + (queries > 1 ? q : 0)) * patches;
    return { rows, columns, get: (r, c) => maps.get(offset + r * columns + c) };
  };
  const colours = data.scale === "diverging" ? "diverging" : "sequential";
  const domain = (matrix) => {
    const [low, high] = extent(matrix);
    const reach = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return [colours === "diverging" ? -reach : 0, reach];
  };
  const scale = (matrix) => scaleOf(colours, domain(matrix), colours === "sequential");
  const [box, canvas] = [el("div", { class: "view" }), el("canvas", { tabindex: 0, role: "img" })];
  const [readout, key] = [el("p", { class: "readout", role: "status" }), el("div")];
  const strength = el("input", { type: "range", min: 0, max: 100, value: 62, "aria-label": "how strongly the map covers the image", input: () => draw() });
  let [width, height] = [0, 0];

  const draw = () => {
    const room = Math.min(LARGEST_IMAGE, box.clientWidth || LARGEST_IMAGE);
    const unit = Math.min(room / image.width, LARGEST_IMAGE / image.height);
    [width, height] = [image.width * unit, image.height * unit];
    const context = canvasOf(canvas, width, height);
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, width, height);
    const matrix = at(chosen, query);
    context.globalAlpha = strength.value / 100;
    context.drawImage(matrixImage(matrix, scale(matrix)), 0, 0, width, height);
    context.globalAlpha = 1;
    const place = query - marker;
    if (queries > 1 && place >= 0) {
      const [w, h] = [width / columns, height / rows];
      context.strokeStyle = css("--mark");
      context.lineWidth = 3;
      context.strokeRect((place % columns) * w + 1.5, Math.floor(place / columns) * h + 1.5, w - 3, h - 3);
    }
    const who = queries === 1 ? "" : `what ${place < 0 ? "<S>" : `row ${Math.floor(place / columns) + 1}, column ${(place % columns) + 1}`} ${label(data.verb)}`;
    const rest = aside ? `; ${percent(aside.get(chosen * queries + (queries > 1 ? query : 0)))} goes to <S>` : "";
    const hint = queries > 1 ? `. Click a patch to see what it ${label(data.verb)}.` : "";
    readout.textContent = ([count > 1 ? names[chosen] : "", who].filter(Boolean).join(": ") + rest + hint).replace(/^; /, "");
    key.replaceChildren(colourBar(colours, ...domain(matrix), label(data.unit)));
    canvas.setAttribute("aria-label", `${label(data.title) || "image"}: ${readout.textContent}`);
    thumbs.forEach((thumb, i) => {
      const small = at(i, query);
      thumb.replaceChildren(matrixImage(small, scale(small)));
      thumb.setAttribute("aria-pressed", String(i === chosen));
    });
    whole && whole.setAttribute("aria-pressed", String(query === 0));
  };
  const patchAt = (event) => {
    const edge = canvas.getBoundingClientRect();
    const c = clamp(Math.floor(((event.clientX - edge.left) / width) * columns), 0, columns - 1);
    const r = clamp(Math.floor(((event.clientY - edge.top) / height) * rows), 0, rows - 1);
    return [r, c];
  };
  const choose = (r, c) => {
    if (queries === 1) return;
    query = marker + clamp(r, 0, rows - 1) * columns + clamp(c, 0, columns - 1);
    draw();
  };
  canvas.addEventListener("pointermove", (event) => {
    const [r, c] = patchAt(event);
    showTip([`${format(at(chosen, query).get(r, c))} ${label(data.unit)}`, `row ${r + 1}, column ${c + 1}`], event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", (event) => choose(...patchAt(event)));
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in ARROWS) || queries === 1) return;
    event.preventDefault();
    const place = Math.max(0, query - marker);
    const [dx, dy] = ARROWS[event.key];
    choose(Math.floor(place / columns) + dy, (place % columns) + dx);
  });
  const whole = marker && el("button", { type: "button", "aria-pressed": "true", click: () => { query = 0; draw(); } }, "<S>");
  const size = clamp(Math.floor(520 / data.across), 34, 72);
  const style = `width:${size}px;height:${Math.round((size * rows) / columns)}px`;
  const thumbs = count === 1 ? [] : names.map((name, i) =>
    withTip(el("button", { class: "thumb", type: "button", "aria-label": name, style, click: () => { chosen = i; draw(); } }), () => [name]));
  const over = data.columns.map((name) => el("span", { class: "over" }, label(name)));
  const grid = el("div", { class: "heads", role: "group", "aria-label": "maps", style: `grid-template-columns: repeat(${data.across}, ${size}px)` }, ...over, ...thumbs);
  rove(grid, thumbs, (thumb, dx, dy) => thumbs[thumbs.indexOf(thumb) + dx + dy * data.across]);
  box.append(canvas, key, readout, el("label", { class: "cover" }, "image", strength, "map"));
  if (whole) box.prepend(el("div", { class: "toolbar" }, el("div", { class: "toggle" }, whole)));
  onWidth(box, draw);
  return [heading(data.title), el("div", { class: "split" }, box, thumbs.length ? grid : null)];
};
