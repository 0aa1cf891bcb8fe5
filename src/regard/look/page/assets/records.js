// What a model predicts for one item, the records it gets wrong, and a value within the range of training.
const LARGE_PICTURE = 150; // pixels
const MANY_CLASSES = 15; // with more of them the list stands below the matrix
const LISTED = 8; // records that are listed at first

renderers.answer = (data) => {
  const verdict = data.verdict ? el("span", { class: `verdict ${data.verdict}` }, data.verdict) : null;
  const head = el("div", { class: "head" }, el("span", { class: "label" }, label(data.label)), el("strong", {}, label(data.headline)), data.detail ? el("span", { class: "detail" }, label(data.detail)) : null, verdict);
  const rows = data.options.flatMap(([name, probability, words], i) => {
    const bar = el("div", { class: data.predicted.includes(i) ? "fill" : "fill quiet", style: `width:${(100 * toNumber(probability)).toFixed(2)}%` });
    return [el("span", { class: "name" }, label(name), data.truth.includes(i) ? el("small", {}, " true") : null), el("div", { class: "bar" }, bar), el("span", { class: "number" }, words)];
  });
  const notes = data.notes.map((note) => el("p", {}, label(note)));
  const words = el("div", { class: "words" }, head, ...notes, rows.length ? el("div", { class: "options" }, ...rows) : null);
  const drawn = pictureOf(data.picture, LARGE_PICTURE);
  return [heading(data.title), el("div", { class: "both" }, drawn.length ? el("div", { class: "picture" }, ...drawn) : null, words)];
};

renderers["item-picture"] = (data) => pictureOf(data.picture);

// A list of records with a sentence above it; `show` replaces what is listed.
function recordList() {
  const [note, items, more] = [el("p", { class: "readout", role: "status" }), el("ol", { class: "records" }), el("button", { type: "button", class: "more" })];
  const item = (one) => el("li", { class: one.wrong ? "wrong" : "" }, el("div", { class: "picture" }, ...pictureOf(one.picture)),
    el("div", { class: "verdicts" }, el("span", { class: "said" }, label(one.prediction)), el("span", {}, label(one.truth))));
  const show = (examples, words) => {
    note.textContent = words;
    items.replaceChildren(...examples.slice(0, LISTED).map(item));
    more.hidden = examples.length <= LISTED;
    more.textContent = `show ${format(examples.length - LISTED)} more`;
    more.onclick = () => {
      items.append(...examples.slice(LISTED).map(item));
      more.hidden = true;
    };
  };
  return { box: el("div", { class: "list" }, note, items, more), show };
}

renderers["record-list"] = (data) => {
  const list = recordList();
  list.show(data.records, label(data.note));
  return [heading(data.title), list.box];
};

// 1234567 → 1.2M: counts that fit a cell; the tip has all digits.
function compact(count) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (count >= 10 * size || (size > 1e3 && count >= size)) return `${count >= 100 * size ? Math.round(count / size) : Number((count / size).toFixed(1))}${letter}`;
  return format(count);
}

renderers.confusion = (data) => {
  const names = data.classes.map(label);
  const totals = data.counts.map((row) => row.reduce((a, b) => a + b, 0));
  const share = (r, c) => (totals[r] ? data.counts[r][c] / totals[r] : 0);
  const list = recordList();
  let chosen = null;
  const reset = el("button", { type: "button", class: "more", hidden: true, click: () => choose(null) }, "all wrong ones");
  const cellWords = (r, c) => [`${format(data.counts[r][c])} ${label(data.unit)}`, `true ${names[r]}, predicted ${names[c]}`, `${percent(share(r, c))} of ${format(totals[r])} true ${names[r]}`];
  const cells = data.counts.map((row, r) => row.map((count, c) =>
    withTip(el("button", { type: "button", class: r === c ? "cell right" : "cell", "aria-label": cellWords(r, c).join(", "), click: () => choose([r, c]) }, count || r === c ? compact(count) : ""), () => cellWords(r, c))));
  const choose = (cell) => {
    chosen = cell;
    reset.hidden = !cell;
    cells.flat().forEach((button) => button.removeAttribute("aria-pressed"));
    if (!cell) return list.show(data.records.filter((one) => one.wrong), label(data.note));
    const [r, c] = cell;
    cells[r][c].setAttribute("aria-pressed", "true");
    const inside = data.records.filter((one) => one.cells.some(([a, b]) => a === r && b === c));
    const count = data.counts[r][c];
    const part = inside.length < count && data.unit === "records" ? `, ${format(inside.length)} of them listed` : "";
    list.show(inside, `true ${names[r]}, predicted ${names[c]}: ${format(count)} ${label(data.unit)}${count ? part : ""}`);
  };
  const head = el("tr", {}, el("td", {}), ...names.map((name) => el("th", { scope: "col" }, el("span", {}, name))));
  const rows = names.map((name, r) => el("tr", {}, el("th", { scope: "row" }, name), ...cells[r].map((cell) => el("td", {}, cell))));
  const long = names.some((name) => name.length > 6);
  const table = el("table", { class: long ? "matrix long" : "matrix", style: `--n: ${names.length}` }, el("thead", {}, head), el("tbody", {}, ...rows));
  const box = el("div", { class: "scroll" }, table);
  onWidth(box, () => {
    const scale = scaleOf("sequential", [0, 1], true);
    cells.forEach((row, r) => row.forEach((cell, c) => {
      cell.style.background = rgb(scale(share(r, c)));
      cell.style.color = inkOn(scale(share(r, c)));
    }));
  });
  rove(table, cells.flat(), (cell, dx, dy) => {
    const i = cells.flat().indexOf(cell);
    return cells[Math.floor(i / names.length) + dy]?.[(i % names.length) + dx];
  });
  const hint = el("p", { class: "hint" }, `True classes down, predicted ones across. Colour is the share of a row.${data.records.length ? " Click a cell to see its records." : ""}`);
  choose(null);
  const listed = data.records.length ? el("div", {}, list.box, reset) : null;
  return [heading(data.title), el("div", { class: names.length > MANY_CLASSES ? "split many" : "split" }, el("div", {}, box, hint), listed)];
};

renderers["value-range"] = (data) => {
  const chart = el("div");
  const edges = data.edges.map(toNumber);
  const counts = data.counts.map(toNumber);
  const [value, low, high, truth] = [data.value, data.low, data.high, data.truth].map(toNumber);
  const all = [edges[0], edges[edges.length - 1], value, low, high, truth].filter(Number.isFinite);
  onWidth(chart, (width) => {
    const height = 170;
    const frame = frameOf({ x: padded([Math.min(...all), Math.max(...all)], false, 0.02), y: [0, 1.3 * Math.max(1, ...counts)] }, data, width, height);
    const bars = counts.map((count, i) => {
      const [from, to] = [frame.x(edges[i]), frame.x(edges[i + 1])];
      return withTip(svg("rect", { class: "fill quiet", x: from, y: frame.y(count), width: Math.max(0.5, to - from - 1), height: frame.bottom - frame.y(count) }),
        () => [`${format(count)} ${label(data.y_label)}`, `${format(edges[i])} to ${format(edges[i + 1])}`]);
    });
    const mark = (x, name, kind, y) => (Number.isFinite(x) ? [
      svg("line", { class: `mark ${kind}`, x1: frame.x(x), x2: frame.x(x), y1: y, y2: frame.bottom }),
      svg("text", { class: "name", x: frame.x(x) + (frame.x(x) > width / 2 ? -6 : 6), y: y + 9, "text-anchor": frame.x(x) > width / 2 ? "end" : "start" }, `${name} ${format(x)}`)] : []);
    const band = Number.isFinite(low) && Number.isFinite(high) ? svg("rect", { class: "band", x: frame.x(low), width: frame.x(high) - frame.x(low), y: MARGIN.top, height: frame.bottom - MARGIN.top }) : null;
    chart.replaceChildren(svg("svg", { width, height, role: "img", "aria-label": `${label(data.title)}: ${format(value)}` },
      ...frame.parts, ...bars, band, ...mark(truth, "true", "truth", MARGIN.top + 14), ...mark(value, "predicted", "value", MARGIN.top)));
  });
  return [heading(data.title), chart];
};
