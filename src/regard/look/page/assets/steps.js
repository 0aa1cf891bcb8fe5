// Step through a model: every stage of one position with its numbers, at four levels of detail.
const LEVELS_OF_DETAIL = ["blocks", "parts", "stages", "numbers"];
const PLAY_EVERY = 1400; // milliseconds
const FEW_TERMS = 12; // terms of a sum that are listed at first
const CELL_TEXT = 40; // pixels that a number needs within a cell
const CELL_NAME = 56; // pixels that the name of a cell may take of those beside it
const SMALLEST_CELL = 3; // pixels; a longer vector takes several lines
const [MANY_NAMED, NAMED_FIRST] = [64, 8]; // numbers from which on the largest are listed, and how many

const nameOf = (stage) => [...stage.path, stage.title].join(" › ");

// The stages with their inputs, names and numbers; `get` gives NaN for rows that the page does not hold.
function readStages(data) {
  const stages = [];
  for (const raw of data.stages) {
    const packed = unpack(raw.values);
    const stage = { ...raw, shape: raw.shape, inputs: raw.inputs.map((i) => stages[i]), live: null, at: stages.length };
    const rowOf = raw.kept ? new Map(raw.kept.map((row, i) => [row, i])) : null;
    const width = widthOf(stage);
    stage.get = (i) => {
      if (stage.live) return stage.live[i];
      if (!rowOf) return packed.get(i);
      const row = rowOf.get(Math.floor(i / width));
      return row === undefined ? NaN : packed.get(row * width + (i % width));
    };
    const name = (names, i, what) => (names < 0 ? `${what}${i + 1}` : tokenOrName(data.labels[names][i]));
    stage.rowName = (r) => name(raw.rows, r, "row ");
    stage.columnName = (c) => name(raw.columns, c, "");
    // Names may be alike, as those of tokens are: a place has its number, too.
    const numbered = (names, i, what) => (names < 0 ? `${what} ${i + 1}` : `${name(names, i, "")} (${i + 1})`);
    stage.place = (i) => {
      const [r, c] = [Math.floor(i / width), i % width];
      return stage.shape.length > 1 ? `${numbered(raw.rows, r, "row")}, ${numbered(raw.columns, c, "column")}` : numbered(raw.columns, c, "number");
    };
    stages.push(stage);
  }
  return stages;
}

function recompute(stages, state) {
  for (const stage of stages) {
    const { op } = stage.how;
    if (!(op in LIVE) || !(op === "temper" || stage.inputs.some((x) => x.live))) continue;
    stage.live = LIVE[op](stage.inputs, state);
    if (op === "temper") stage.how.temperature = state.temperature;
  }
}

// Where the cells of a stage stand: a table row by row, a vector in one line, or in several of small cells.
function stripLayout(stage, width) {
  const table = stage.shape.length > 1;
  const [rows, columns] = table ? [stage.kept ? stage.kept.length : stage.shape[0], widthOf(stage)] : [1, sizeOf(stage)];
  const left = table && width > 420 ? 90 : 0;
  const room = width - left;
  if (!table && columns * SMALLEST_CELL > room) {
    const cell = clamp(Math.sqrt((room * 360) / columns), 2, SMALLEST_CELL);
    const across = Math.floor(room / cell);
    const lines = Math.ceil(columns / across);
    return { left, top: 0, cell, h: Math.max(cell, Math.min(16, Math.floor(64 / lines))), across, lines, named: false };
  }
  const few = !table && columns <= 32;
  const cell = Math.min(few ? 64 : 26, room / columns);
  const named = few && stage.columns >= 0 && cell >= 9;
  return { left, top: named ? 16 : 0, cell, h: table ? clamp(Math.floor(220 / rows), 3, 18) : 26, across: columns, lines: rows, named };
}

// Numbers as coloured cells; of a table of which the page holds some rows alone, these. `pick(place, fixed)` when the pointer or the arrow keys choose one.
function numberStrip(stage, pick) {
  const table = stage.shape.length > 1;
  const count = sizeOf(stage);
  const marks = { refs: [], chosen: -1 };
  const [canvas, base] = [el("canvas", { tabindex: 0, role: "img" }), el("canvas")];
  const box = el("div", { class: "strip map" }, canvas);
  let at = null;
  const describe = (i) => canvas.setAttribute("aria-label", `${label(stage.title)}: ${i < 0
    ? `${table ? `${stage.shape[0]} rows of ${widthOf(stage)}` : count} numbers; arrow keys read them` : `${stage.place(i)}: ${written(stage, i)}`}`);
  // The place of the n-th cell, and the cell of a place; −1 if it has none.
  const lineOf = stage.kept ? new Map(stage.kept.map((row, n) => [row, n])) : null;
  const across = widthOf(stage);
  const placeOf = (n) => (lineOf ? stage.kept[Math.floor(n / across)] * across + (n % across) : n);
  const cellOf = (i) => (lineOf ? (lineOf.get(Math.floor(i / across)) ?? NaN) * across + (i % across) : i);
  const cells = lineOf ? stage.kept.length * across : count;
  const corner = (n) => [at.left + (n % at.across) * at.cell, at.top + Math.floor(n / at.across) * at.h];
  const paint = (width) => {
    at = stripLayout(stage, width);
    const context = canvasOf(base, Math.max(1, Math.ceil(at.left + at.cell * at.across)), Math.ceil(at.top + at.h * at.lines));
    const values = range(cells).map((n) => stage.get(placeOf(n)));
    const high = values.filter(Number.isFinite).reduce((a, v) => Math.max(a, Math.abs(v)), 0) || 1;
    const positive = values.every((v) => !(v < 0 && Number.isFinite(v)));
    const scale = scaleOf(positive ? "sequential" : "diverging", positive ? [0, high] : [-high, high], positive);
    const hatched = hatch(context);
    const [gapX, gapY] = [at.cell > 6 ? 1 : 0, at.h > 6 && (table || at.lines > 1) ? 1 : 0];
    values.forEach((value, i) => {
      const [x, y] = corner(i);
      context.fillStyle = Number.isFinite(value) ? rgb(scale(value)) : hatched;
      context.fillRect(x, y, Math.max(1, at.cell - gapX), Math.max(1, at.h - gapY));
    });
    names(context);
    if (at.cell >= CELL_TEXT && !table) digits(context, values, scale);
    show();
  };
  const names = (context) => {
    context.textBaseline = "middle";
    context.font = LABEL_FONT;
    context.fillStyle = css("--muted");
    context.textAlign = "right";
    if (at.left && at.h >= 11) range(at.lines).forEach((r) => context.fillText(clip(context, stage.rowName(stage.kept ? stage.kept[r] : r), at.left - 8), at.left - 6, at.top + (r + 0.5) * at.h));
    context.textAlign = "center";
    if (!at.named) return;
    const widest = Math.max(...range(count).map((c) => context.measureText(stage.columnName(c)).width));
    const every = Math.ceil(Math.min(widest + 4, CELL_NAME) / at.cell); // as many names as there is room for
    context.textAlign = every > 1 ? "left" : "center";
    const middle = every > 1 ? 0 : 0.5;
    range(count).filter((c) => c % every === 0).forEach((c) => context.fillText(clip(context, stage.columnName(c), at.cell * every - 3), at.left + (c + middle) * at.cell, 7));
  };
  const digits = (context, values, scale) => {
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    const shown = values.every((value) => Number.isInteger(value) || !Number.isFinite(value)) ? format : cellNumber; // ids and counts are whole
    values.forEach((value, i) => {
      context.fillStyle = Number.isFinite(value) ? inkOn(scale(value)) : css("--muted");
      context.fillText(Number.isFinite(value) ? shown(value) : Number.isNaN(value) ? "–" : format(value), at.left + (i + 0.5) * at.cell, at.top + at.h / 2);
    });
  };
  // The cells as they were painted, with outlines on top.
  const show = () => {
    const [width, height] = [parseFloat(base.style.width), parseFloat(base.style.height)];
    const context = canvasOf(canvas, width, height);
    context.drawImage(base, 0, 0, width, height);
    outline(context, "--mark", marks.refs);
    if (marks.chosen >= 0) outline(context, "--ink", [marks.chosen]);
  };
  // Neighbors share one outline, which covers no number between them.
  const outline = (context, colour, places) => {
    context.strokeStyle = css(colour);
    context.lineWidth = 2;
    const runs = [];
    for (const i of places.map(cellOf).filter((n) => n >= 0).toSorted((x, y) => x - y)) {
      const last = runs[runs.length - 1];
      if (last && (i === last[1] || (i === last[1] + 1 && i % at.across))) last[1] = i;
      else runs.push([i, i]);
    }
    for (const [from, to] of runs) {
      const [x, y] = corner(from);
      context.strokeRect(x + 0.5, y + 1, Math.max(2, (to - from + 1) * at.cell - 1), Math.max(2, at.h - 2));
    }
  };
  const under = (event) => {
    const edge = canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - edge.left - at.left) / at.cell);
    const r = Math.floor((event.clientY - edge.top - at.top) / at.h);
    const n = r * at.across + c;
    return c >= 0 && r >= 0 && c < at.across && n < cells ? placeOf(n) : -1;
  };
  const choose = (i, x, y, fixed) => {
    describe(i);
    showTip([written(stage, i), `${label(stage.title)}, ${stage.place(i)}`], x, y);
    pick(i, fixed);
  };
  canvas.addEventListener("pointermove", (event) => {
    const i = under(event);
    i < 0 ? hideTip() : choose(i, event.clientX, event.clientY, false);
  });
  canvas.addEventListener("click", (event) => under(event) >= 0 && choose(under(event), event.clientX, event.clientY, true));
  canvas.addEventListener("pointerleave", () => (hideTip(), pick(-1, false)));
  canvas.addEventListener("blur", hideTip);
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in ARROWS)) return;
    const [dx, dy] = ARROWS[event.key];
    if (dy && at.lines === 1) return; // up and down zoom
    event.preventDefault();
    event.stopPropagation();
    const n = marks.chosen < 0 ? 0 : clamp(cellOf(marks.chosen) + dx + dy * at.across, 0, cells - 1);
    const [edge, [x, y]] = [canvas.getBoundingClientRect(), corner(n)];
    choose(placeOf(n), edge.left + x + at.cell, edge.top + y + at.h, true);
  });
  describe(-1);
  onWidth(box, paint);
  const mark = (refs, chosen = -1) => {
    [marks.refs, marks.chosen] = [refs, chosen];
    if (!at) return;
    show();
    const first = refs.length ? cellOf(refs[0]) : NaN; // of a long table, what is outlined is in view
    if (first >= 0 && box.scrollHeight > box.clientHeight) box.scrollTop = corner(first)[1] - box.clientHeight / 2;
  };
  return { box, mark, refresh: () => at && paint(box.clientWidth) };
}
const cellNumber = (value) => (Math.abs(value) < 10 ? value.toFixed(2) : value.toFixed(Math.abs(value) < 100 ? 1 : 0)).replace("-", "−");

// Why a number is not there: the page has no room for its row, or it was never known.
const absent = (stage) => (stage.kept ? "not on the page" : "missing");
const distinct = (refs) => refs.filter(([k, at], n) => refs.findIndex(([other, place]) => other === k && place === at) === n);
const written = (stage, i) => (Number.isNaN(stage.get(i)) ? absent(stage) : exactly(stage.get(i)));

// The terms of one number, or the lines of its formula; numbers are buttons that lead to where they come from.
function termsOf(stage, i, { mark, go, all, more }) {
  const found = explain(stage, i);
  if (!found) return [el("p", {}, stage.how.op === "opaque" ? "The model computed it; its steps are not shown." : "It is given: nothing before it makes it.")];
  const number = ([k, at]) => {
    const input = stage.inputs[k];
    return el("button", { type: "button", class: "link", title: `${label(input.title)}, ${input.place(at)}`, click: () => go(input, at) }, written(input, at));
  };
  if (!found.terms) return [
    ...found.lines.map((line) => el("p", { class: "line" }, line)),
    el("p", { class: "line" }, "from ", ...distinct(found.refs).slice(0, FEW_TERMS).flatMap((ref, n) => [n ? ", " : "", `${label(stage.inputs[ref[0]].title)} `, number(ref)])),
  ];
  const { terms } = found;
  const factorsOf = (term) => term.refs.map(([k]) => label(stage.inputs[k].title)).join(" · ");
  const product = factorsOf(terms[0]);
  const alike = terms.filter((term) => term.refs.length === terms[0].refs.length).every((term) => factorsOf(term) === product);
  const order = range(terms.length).sort((a, b) => Math.abs(terms[b].value) - Math.abs(terms[a].value) || a - b);
  const listed = (all ? order : order.slice(0, FEW_TERMS)).map((t) => {
    const { refs, factor, words, value } = terms[t];
    const factors = refs.flatMap((ref, n) => [n ? " · " : "", number(ref)]);
    if (factor !== 1 || !refs.length) factors.push(refs.length ? " · " : "", `${words ? `${words} = ` : ""}${exactly(factor)}`);
    const usual = alike && refs.length === terms[0].refs.length; // a bias has its own name
    const where = usual ? (refs.length ? stage.inputs[refs[0][0]].place(refs[0][1]) : "") : factorsOf(terms[t]);
    const row = el("tr", {}, el("td", {}, where), el("td", {}, ...factors), el("td", { class: "right" }, Number.isNaN(value) ? "–" : exactly(value)));
    row.addEventListener("pointerenter", () => mark(refs));
    row.addEventListener("pointerleave", () => mark(null));
    row.addEventListener("focusin", () => mark(refs));
    return row;
  });
  const missing = terms.some((term) => Number.isNaN(term.value));
  const head = el("tr", {}, ...[alike ? "at" : "what", alike && product ? product : "number", "term"].map((text, n) => el("th", { scope: "col", class: n === 2 ? "right" : null }, text)));
  const left = order.slice(FEW_TERMS);
  const rest = all || !left.length ? "" : `; the ${format(left.length)} that are not listed add up to ${exactly(sum(left.map((t) => terms[t].value)))}`;
  const total = missing ? "Some numbers are not on the page: it holds the rows that matter most." : `${terms.length > 1 ? `the sum of ${format(terms.length)} terms: ` : ""}${exactly(found.value)}${rest}`;
  return [
    el("div", { class: "scroll" }, el("table", { class: "terms" }, el("thead", {}, head), el("tbody", {}, ...listed))),
    terms.length === 1 && !missing ? null : el("p", { class: "line total" }, total, terms.length > FEW_TERMS ? el("button", { type: "button", class: "link", click: more }, all ? "show the largest alone" : `show all ${terms.length}`) : null),
  ].filter(Boolean);
}

// Sliders of temperature, top-K, top-P and of the random number, and the token that is drawn.
function samplingSliders(data, state, change) {
  const size = data.sampling;
  const set = (name) => (raw) => {
    state[name] = name === "topK" ? clamp(Math.round(size ** raw), 1, size) : raw;
    change();
    return state[name];
  };
  return el("div", { class: "sliders" },
    slider("temperature", { low: 0.05, high: 3, at: state.temperature, value: state.temperature }, (v) => format(v, 3), set("temperature")),
    slider("top-K", { low: 0, high: 1, at: Math.log(state.topK) / Math.log(size) || 1, value: state.topK }, (v) => (v >= size ? "all" : format(v)), set("topK")),
    slider("top-P", { low: 0.01, high: 1, at: state.topP, value: state.topP }, (v) => (v >= 1 ? "all" : format(v, 3)), set("topP")),
    slider("random number u", { low: 0, high: 0.9999, at: state.u, value: state.u }, (v) => format(v, 3), set("u")));
}

renderers.steps = (data) => {
  const stages = readStages(data);
  const shown = stages.filter((stage) => stage.shown);
  const sampling = { temperature: 1, topK: data.sampling, topP: 1, u: 0.5 };
  const state = { level: 1, stage: 0, number: 0, all: false, timer: 0 };
  const key = (stage, level) => (level === 0 ? stage.path[0] : stage.path.join("\u0000"));
  const groupsAt = (level) => {
    const groups = [];
    shown.forEach((stage, i) => {
      const last = groups[groups.length - 1];
      if (last && level < 2 && key(stage, level) === last.key) last.stages.push(stage);
      else groups.push({ key: key(stage, level), first: i, stages: [stage] });
    });
    return groups;
  };
  const groups = [0, 1, 2].map(groupsAt);
  const current = () => shown[state.stage];
  const groupIndex = (level) => groups[Math.min(level, 2)].findLastIndex((group) => group.first <= state.stage);
  let strips = []; // [stage, strip] that are on the screen
  const panel = el("div", { class: "panel" });
  const numberBox = el("div", { class: "number-box", role: "status" });

  const markAll = (refs, stage, i) => {
    for (const [of, strip] of strips) {
      const own = stage ? stage.inputs.flatMap((x, k) => (x === of ? refs.filter(([n]) => n === k).map(([, at]) => at) : [])) : [];
      strip.mark(own, of === stage ? i : -1);
    }
  };
  const explainNumber = (stage, i) => {
    const found = explain(stage, i);
    const refs = found ? found.refs : [];
    markAll(refs, stage, i);
    numberBox.replaceChildren(
      el("h4", {}, `${label(stage.title)}, ${stage.place(i)}`, " = ", el("output", { class: "value" }, written(stage, i))),
      ...termsOf(stage, i, {
        all: state.all,
        mark: (some) => markAll(some ?? refs, stage, i),
        go: (input, at) => goTo(input, at),
        more: () => ((state.all = !state.all), explainNumber(stage, i)),
      }));
  };
  const pinned = () => explainNumber(current(), state.number);
  const pickFrom = (stage) => (i, fixed) => {
    if (stage !== current()) {
      if (fixed) goTo(stage, i);
      return;
    }
    if (i >= 0 && fixed) {
      state.number = i;
      if (state.level === 3) drawScrub();
    }
    i < 0 ? pinned() : explainNumber(stage, i);
  };
  const stripOf = (stage) => {
    const strip = numberStrip(stage, pickFrom(stage));
    strips.push([stage, strip]);
    return strip.box;
  };
  const formula = (stage) => (stage.formula ? el("p", { class: "formula" }, label(stage.formula)) : null);
  const notation = (stage) => (stage.lecture.length
    ? el("details", { class: "lecture" }, el("summary", {}, "In the lectures' notation"), ...stage.lecture.map((line) => el("p", {}, line)))
    : null);
  const drawn = () => {
    const last = shown.find((stage) => stage.how.op === "draw");
    const at = last ? valuesOf(last).findIndex((F) => F > sampling.u) : -1;
    return at < 0 ? null : el("p", { class: "drawn", role: "status" }, `The sample for u = ${format(sampling.u, 3)}: `, el("strong", {}, last.columnName(at)));
  };
  // The largest of many named numbers: of a distribution, the tokens that matter.
  const largest = (stage) => {
    if (stage.columns < 0 || stage.shape.length > 1 || sizeOf(stage) < MANY_NAMED) return null;
    const order = range(sizeOf(stage)).sort((a, b) => stage.get(b) - stage.get(a) || a - b).slice(0, NAMED_FIRST);
    const button = (i) => el("button", { type: "button", class: "link", click: () => ((state.number = i), pinned()) }, `${stage.columnName(i)} ${cellNumber(stage.get(i))}`);
    return el("p", { class: "line" }, "largest: ", ...order.flatMap((i, n) => [n ? ", " : "", button(i)]));
  };
  const place = () => el("nav", { class: "crumbs", "aria-label": "where this stage stands" },
    ...current().path.flatMap((name, depth) => [depth ? " › " : "", el("button", { type: "button", class: "link", click: () => zoom(depth ? 1 : 0) }, label(name))]));
  const single = () => {
    const stage = current();
    const inputs = stage.inputs.map((input) => el("div", { class: "input" },
      el("h5", {}, input.shown ? el("button", { type: "button", class: "link", click: () => goTo(input, 0) }, label(input.title)) : label(input.title),
        el("small", {}, ` ${input.shape.join(" × ")}${input.kept ? `, ${input.kept.length} rows on the page` : ""}`)),
      stripOf(input)));
    const live = stage.live && data.sampling;
    const result = el("p", { class: "drawn-line" });
    const refresh = () => {
      recompute(stages, sampling);
      for (const [, strip] of strips) strip.refresh();
      pinned();
      result.replaceChildren(drawn() ?? "");
    };
    const order = [place(), el("h4", { class: "title" }, label(stage.title), el("small", {}, ` ${stage.shape.join(" × ")}`)), formula(stage), notation(stage),
      live ? samplingSliders(data, sampling, refresh) : null, live ? result : null, ...inputs,
      el("div", { class: "input output" }, inputs.length ? el("h5", {}, `${label(stage.title)}: the result`) : null, stripOf(stage), stage.how.op === "draw" ? null : largest(stage)), numberBox];
    panel.replaceChildren(...order.filter(Boolean));
    if (live) result.replaceChildren(drawn() ?? "");
    pinned();
  };
  const overview = (group) => {
    const parts = state.level === 0 ? groups[1].filter(({ first }) => first >= group.first && first < group.first + group.stages.length) : null;
    const cards = parts ? parts.map((part) => ({ stage: part.stages[part.stages.length - 1], name: part.stages[0].path.slice(1).join(" › ") || part.stages[0].path[0], first: part.first }))
      : group.stages.map((stage, n) => ({ stage, name: stage.title, first: group.first + n }));
    panel.replaceChildren(
      state.level ? place() : "",
      el("h4", { class: "title" }, label(group.stages[0].path.slice(state.level ? -1 : 0)[0])),
      ...cards.map(({ stage, name, first }) => el("div", { class: "card" },
        el("h5", {}, el("button", { type: "button", class: "link", click: () => (enter(first), zoom(state.level + 1)) }, label(name)),
          el("small", {}, parts && stage.title !== name ? ` ${label(stage.title)}` : "")),
        parts ? null : formula(stage), stripOf(stage))));
  };
  const count = () => (state.level === 3 ? sizeOf(current()) : groups[state.level].length);
  const at = () => (state.level === 3 ? state.number : groupIndex(state.level));
  const scrub = el("input", { type: "range", min: 0, step: 1, "aria-label": "step", input: () => jump(Number(scrub.value)) });
  const where = el("output", {});
  const drawScrub = () => {
    scrub.max = Math.max(0, count() - 1);
    scrub.value = at();
    const what = LEVELS_OF_DETAIL[state.level].slice(0, -1);
    const stage = current();
    where.textContent = `${what} ${at() + 1} of ${count()}`;
    scrub.setAttribute("aria-valuetext", `${where.textContent}: ${[...stage.path, stage.title].map(label).join(", ")}`);
    chooser.value = String(groups[1][groupIndex(1)].first);
  };
  const render = () => {
    strips = [];
    hideTip();
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === state.level)));
    state.level >= 2 ? single() : overview(groups[state.level][groupIndex(state.level)]);
    drawScrub();
    tell("view", { level: state.level, stage: state.stage, number: state.number, where: nameOf(current()) });
  };
  // A stage is entered at the number that the input is about, as the class that is predicted.
  const enter = (i) => {
    state.stage = i;
    state.number = current().shape.length === 1 && current().mark >= 0 ? current().mark : 0;
  };
  const jump = (i) => {
    if (state.level === 3) state.number = i;
    else enter(groups[state.level][i].first);
    state.level === 3 ? (pinned(), drawScrub()) : render();
  };
  const step = (by) => {
    const next = at() + by;
    if (next >= 0 && next < count()) return jump(next);
    if (state.level < 3 || state.stage + by < 0 || state.stage + by >= shown.length) return stop();
    state.stage += by;
    state.number = by > 0 ? 0 : sizeOf(current()) - 1;
    render();
  };
  const zoom = (level) => {
    state.level = clamp(level, 0, 3);
    render();
  };
  const goTo = (stage, i) => {
    if (!stage.shown) return explainInput(stage, i);
    [state.stage, state.number] = [shown.indexOf(stage), i];
    state.level = Math.max(2, state.level);
    render();
  };
  const explainInput = (stage, i) => numberBox.replaceChildren(
    el("h4", {}, `${label(stage.title)}, ${stage.place(i)}`, " = ", el("output", { class: "value" }, written(stage, i))),
    el("p", {}, stage.how.op === "given" ? "It is given: a parameter, or what another position holds." : ""),
    el("button", { type: "button", class: "link", click: pinned }, "back"));
  const stop = () => {
    clearInterval(state.timer);
    state.timer = 0;
    play.textContent = "Play";
  };
  const toggle = () => {
    if (state.timer) return stop();
    if (at() === count() - 1 && state.level < 3) jump(0);
    state.timer = setInterval(() => (box.isConnected ? step(1) : stop()), PLAY_EVERY);
    play.textContent = "Pause";
  };
  const play = el("button", { type: "button", click: toggle }, "Play");
  const back = el("button", { type: "button", "aria-label": "step back", click: () => (stop(), step(-1)) }, "‹");
  const forth = el("button", { type: "button", "aria-label": "step forward", click: () => (stop(), step(1)) }, "›");
  const buttons = LEVELS_OF_DETAIL.map((name, i) => el("button", { type: "button", click: () => zoom(i) }, name));
  const chooser = el("select", { "aria-label": "go to", change: () => (enter(Number(chooser.value)), render()) },
    ...groups[1].map((group) => el("option", { value: group.first }, group.stages[0].path.map(label).join(" › "))));
  // In the studio a token can be chosen; a page has one.
  const tell = (name, detail) => box.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  const tokens = el("p", { class: "tokens", ...(data.movable ? {} : { tabindex: 0, role: "group", "aria-label": "tokens" }) }, ...data.tokens.map((token, i) => el(data.movable ? "button" : "span", {
    type: data.movable ? "button" : null, class: i === data.position ? "token chosen" : "token", "aria-current": i === data.position ? "true" : null,
    ...(data.movable ? { click: () => tell("choose-token", i) } : {}),
  }, tokenOrName(token))));
  requestAnimationFrame(() => { // the chosen token of a long text is in view
    const chosen = tokens.children[data.position];
    if (chosen) tokens.scrollTop = chosen.offsetTop - tokens.offsetTop - tokens.clientHeight / 2;
  });
  const box = el("div", { class: "stepper", tabindex: 0, role: "group", "aria-label": "step through the model: space plays, left and right step, up and down zoom" },
    tokens,
    el("div", { class: "controls" }, el("div", { class: "buttons" }, back, play, forth), scrub, where),
    el("div", { class: "controls" }, el("div", { class: "toggle", role: "group", "aria-label": "level of detail" }, ...buttons), chooser),
    panel);
  box.addEventListener("keydown", (event) => {
    const own = event.target === tokens || event.target.closest("input, select, summary, textarea");
    const pressed = event.target.closest("button");
    if (own || event.altKey || event.ctrlKey || event.metaKey) return;
    const act = { " ": pressed ? null : toggle, ArrowRight: () => (stop(), step(1)), ArrowLeft: () => (stop(), step(-1)), ArrowDown: () => zoom(state.level + 1), ArrowUp: () => zoom(state.level - 1), Home: () => jump(0), End: () => jump(count() - 1) }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  recompute(stages, sampling);
  if (data.view) { // as it stood before another token was chosen
    const found = shown.findIndex((stage) => nameOf(stage) === data.view.where); // names may hold the token
    Object.assign(state, { level: data.view.level, stage: found < 0 ? Math.min(data.view.stage, shown.length - 1) : found });
    state.number = clamp(data.view.number, 0, sizeOf(current()) - 1);
  }
  render();
  box.steps = { stages, explain, goTo: (i, number) => goTo(stages[i], number) }; // for the studio and for tests
  return [heading(data.title), box, el("p", { class: "hint" },
    "Space plays; left and right step; down and up zoom from blocks to single numbers. Point at a number to see what it is made of; click to keep it. Outlined cells are the numbers that it comes from.")];
};
