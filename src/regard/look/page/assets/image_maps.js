// An image with a map of its patches over it; a chosen patch shows its own map, small ones choose which.
const LARGEST_IMAGE = 300; // pixels
const COVERED = 45; // per cent by which a map covers its image at first

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

// Small maps in rows with the names of rows and columns around them, or each with its own name below it.
function mapGrid(data, thumbs, size) {
  const [down, over] = [data.down.map(label), data.over.map(label)];
  const named = !over.length && thumbs.length <= 12;
  const cells = thumbs.map((thumb, i) => (named ? el("figure", {}, thumb, el("figcaption", {}, label(data.names[i]))) : thumb));
  const rows = [];
  if (over.length) rows.push(down.length ? el("span", {}) : null, ...over.map((name) => el("span", { class: over.some((text) => text.length * 7 > size) ? "over" : "head" }, name)));
  cells.forEach((cell, i) => {
    if (down.length && i % data.across === 0) rows.push(el("span", { class: "down" }, down[i / data.across]));
    rows.push(cell);
  });
  const columns = `${down.length ? "auto " : ""}repeat(${data.across}, ${named ? Math.max(size, 96) : size}px)`;
  const grid = el("div", { class: named ? "heads named" : "heads", role: "group", "aria-label": "maps", style: `grid-template-columns: ${columns}` }, ...rows);
  rove(grid, thumbs, (thumb, dx, dy) => thumbs[thumbs.indexOf(thumb) + dx + dy * data.across]);
  return grid;
}

renderers["image-maps"] = (data) => {
  const maps = unpack(data.maps);
  const aside = data.aside && unpack(data.aside);
  const [count, queries, patches] = maps.shape;
  const [rows, columns] = data.grid;
  const image = data.pixels && pixelsOf(data); // none: the maps stand by themselves
  const [pixelsWide, pixelsHigh] = image ? [image.width, image.height] : [columns, rows];
  const marker = queries === patches + 1 ? 1 : 0; // rows before those of the patches
  const names = data.names.map(label);
  let [chosen, query] = [0, 0];
  const at = (map, q) => {
    const offset = (map * queries + (queries > 1 ? q : 0)) * patches;
    return { rows, columns, get: (r, c) => maps.get(offset + r * columns + c) };
  };
  const colours = data.scale === "diverging" ? "diverging" : "sequential";
  const everything = data.scale === "sequential" && extent({ rows: count * queries, columns: patches, get: (r, c) => maps.get(r * patches + c) });
  const domain = (matrix) => {
    if (everything) return everything;
    const [low, high] = extent(matrix);
    const reach = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return [colours === "diverging" ? -reach : 0, reach];
  };
  const scale = (matrix) => scaleOf(colours, domain(matrix), data.scale === "weights");
  const [box, canvas] = [el("div", { class: image ? "view" : "view alone" }), el("canvas", { tabindex: 0, role: "img" })];
  const plain = image && el("canvas", { class: "plain", role: "img", "aria-label": "the image by itself" });
  const [readout, key] = [el("p", { class: "readout", role: "status" }), el("div")];
  const strength = el("input", { type: "range", min: 0, max: 100, value: image ? COVERED : 100, "aria-label": "how strongly the map covers the image", input: () => draw() });
  let [width, height] = [0, 0];

  const draw = () => {
    const room = Math.min(LARGEST_IMAGE, ((box.clientWidth || 2 * LARGEST_IMAGE) - (image ? 10 : 0)) / (image ? 2 : 1));
    const unit = Math.min(room / pixelsWide, LARGEST_IMAGE / pixelsHigh);
    [width, height] = [pixelsWide * unit, pixelsHigh * unit];
    const context = canvasOf(canvas, width, height);
    context.imageSmoothingEnabled = false;
    for (const ink of image ? [context, canvasOf(plain, width, height)] : []) {
      ink.imageSmoothingEnabled = false;
      ink.drawImage(image, 0, 0, width, height);
    }
    const matrix = at(chosen, query);
    context.globalAlpha = strength.value / 100;
    context.drawImage(matrixImage(matrix, scale(matrix)), 0, 0, width, height);
    context.globalAlpha = 1;
    const [w, h] = [width / columns, height / rows];
    if (!image) drawValues(context, matrix, scale(matrix), { left: 0, top: 0, w, h }, (value) => (w > 34 ? format(value, 2) : ""));
    const place = queries > 1 ? query - marker : data.outlined ? chosen : -1;
    if (place >= 0) {
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
  box.append(el("div", { class: "pair" }, plain, canvas), key, readout);
  if (image) box.append(el("label", { class: "cover" }, "image", strength, "map"));
  if (whole) box.prepend(el("div", { class: "toolbar" }, el("div", { class: "toggle" }, whole)));
  onWidth(box, draw);
  return [heading(data.title), el("div", { class: "split" }, box, thumbs.length ? mapGrid(data, thumbs, size) : null)];
};
