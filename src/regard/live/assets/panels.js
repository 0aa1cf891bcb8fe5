// What live pages share: the box for a text, attention as it is now, and changes of activations.
const screens = {}; // by name: data → elements

function part(title, note, ...children) {
  return el("section", {}, el("h2", {}, title), note ? el("p", { class: "note" }, note) : null, ...children);
}
const place = (kind) => el("div", { class: `component ${kind}` });

// Draw a component anew, at once: waiting for the next frame would flicker.
function show(box, kind, data) {
  mount(box, kind, data);
  redraw(box);
}

// A box where a text is typed: what is in it, and how to put something there.
function textBox({ name, start, rows = 2, changed }) {
  const box = el("textarea", { rows, "aria-label": name, spellcheck: "false", autocomplete: "off", autocapitalize: "off", input: () => changed() });
  box.value = start ?? "";
  return { element: el("label", { class: "field" }, el("span", {}, name), box), value: () => box.value };
}

function entropyOf(weights) {
  let bits = 0;
  for (let i = 0; i < weights.length; i++) if (weights[i] > 0) bits -= weights[i] * Math.log2(weights[i]);
  return bits;
}

// Attention weights of all heads, as the component for them takes them.
function attentionData(session, tokens, view, changed) {
  const { heads } = session.model;
  const rows = heads.map(({ name }) => session.trace.list(`${name}.weights`));
  const keys = tokens.length;
  const matrices = heads.flatMap(({ count }, l) => Array.from({ length: count }, (_, h) => ({
    rows: keys, columns: keys, bits: 0, bounds: () => null,
    get: (r, c) => {
      const seen = rows[l][r].length / count;
      return c < seen ? rows[l][r][h * seen + c] : 0;
    },
  })));
  const entropies = heads.flatMap(({ count }, l) => Array.from({ length: count }, (_, h) => {
    const bits = (row) => entropyOf(row.subarray((h * row.length) / count, ((h + 1) * row.length) / count));
    return rows[l].reduce((sum, row) => sum + bits(row), 0) / keys;
  }));
  const shape = [heads.length, heads[0].count, keys, keys];
  return { title: "", tokens, sources: tokens, layers: heads.map(({ label }) => label), weights: { shape, matrices }, entropies, ...view, changed };
}

// Buttons that switch heads off; `edits` zero what these heads give to the residual stream.
function headSwitches(model, changed) {
  const off = new Set();
  const button = (layer, head, name) => {
    const key = `${layer} ${head}`;
    const one = el("button", { type: "button", class: "switch", "aria-pressed": "false", "aria-label": `switch off ${name}, head ${head + 1}`, click: () => {
      off.has(key) ? off.delete(key) : off.add(key);
      one.setAttribute("aria-pressed", String(off.has(key)));
      changed();
    } }, String(head + 1));
    return one;
  };
  const rows = model.heads.map(({ label: name, count }, l) => Array.from({ length: count }, (_, h) => button(l, h, name)));
  const grid = el("div", { class: "switches", role: "group", "aria-label": "heads that are switched off" },
    ...rows.map((buttons, l) => el("div", {}, el("span", {}, model.heads[l].label), ...buttons)));
  const flat = rows.flat();
  rove(grid, flat, (item, dx, dy) => flat[flat.indexOf(item) + dx + dy * (rows[0]?.length ?? 0)]);
  const edits = () => [...off].map((key) => {
    const [layer, head] = key.split(" ").map(Number);
    const { name, width } = model.heads[layer];
    return { name: `${name}.heads`, position: null, first: head * width, count: width, values: null };
  });
  return { element: el("div", {}, el("h3", {}, "Heads switched off"), grid), edits };
}

// Activations that a second input can give to the first: the residual stream, or one head.
function patchable(model) {
  const heads = model.heads.flatMap(({ name, label: layer, count, width }) => Array.from({ length: count }, (_, h) =>
    ({ name: `${name}.heads`, label: `${layer}, head ${h + 1}`, first: h * width, count: width })));
  return [...model.hidden.map((one) => ({ first: 0, ...one })), ...heads];
}

// A second input, and which of its activations takes the place of the first one's.
function patchPanel(model, makeBox, encode, changed) {
  const choices = patchable(model);
  const second = makeBox({ name: "second input", start: "", rows: 1, changed });
  const options = choices.map((choice, i) => el("option", { value: i }, choice.label));
  const [what, where] = [["activation", options], ["position", []]].map(([name, inner]) => el("select", { "aria-label": name, change: changed }, ...inner));
  const on = el("input", { type: "checkbox", change: changed });
  const session = makeSession(model);
  const everywhere = () => el("option", { value: "all" }, "all positions");
  const field = (name, control) => el("label", { class: "field" }, el("span", {}, name), control);
  // Positions are named anew with every text; the chosen one stays chosen.
  const name = (tokens) => {
    const chosen = where.value || "all";
    where.replaceChildren(everywhere(), ...tokens.map((token, t) => el("option", { value: t }, `${t + 1}: ${token}`)));
    where.value = chosen;
    if (where.selectedIndex < 0) where.value = "all";
  };
  const edits = (length) => {
    const ids = on.checked ? encode(second.value()) : [];
    if (!ids.length) return [];
    session.read(ids);
    const choice = choices[what.value];
    const { data, width } = session.trace.get(choice.name);
    const rows = session.length(ids);
    const places = where.value === "all" ? Array.from({ length: Math.min(length, rows) }, (_, t) => t) : [Number(where.value)];
    return places.map((position) => {
      const at = Math.min(position, rows - 1) * width + choice.first;
      return { name: choice.name, position, first: choice.first, count: choice.count, values: data.slice(at, at + choice.count) };
    });
  };
  name([]);
  const element = el("div", { class: "patch" }, el("h3", {}, "Activation taken from a second input"), second.element,
    field("activation", what), field("position", where), el("label", { class: "check" }, on, el("span", {}, "patch it in")));
  return { element, edits, name };
}

// How far the changed distribution is from the unchanged one, in bits.
function divergence(before, after) {
  const [p, q] = [logProbabilities(before), logProbabilities(after)];
  let bits = 0;
  for (let i = 0; i < p.length; i++) if (p[i] > -Infinity) bits += (Math.exp(p[i]) * (p[i] - q[i])) / Math.LN2;
  return bits;
}

// Two sessions on one model: as it is, and with the changes that the reader makes.
function makeChanges(model, makeBox, encode, changed) {
  const switches = model.heads.length ? headSwitches(model, changed) : null;
  const patch = model.hidden.length ? patchPanel(model, makeBox, encode, changed) : null;
  const [plain, edited] = [makeSession(model), makeSession(model)];
  const effect = el("p", { class: "readout", role: "status" });
  let applied = "[]";
  const read = (ids, length) => {
    plain.read(ids);
    const edits = [...(switches?.edits() ?? []), ...(patch?.edits(length) ?? [])];
    const wanted = JSON.stringify(edits);
    if (wanted !== applied) edited.edit(edits);
    applied = wanted;
    if (!edits.length) {
      effect.textContent = "Nothing is changed.";
      return plain;
    }
    edited.read(ids);
    return edited;
  };
  const compare = (session, t, what) => {
    if (session !== plain) effect.textContent = `${what} moved by ${format(divergence(plain.logits(t), session.logits(t)), 3)} bits (Kullback–Leibler).`;
  };
  const element = part("Change the model",
    "Switch heads off, or let an activation of a second input take the place of the first one's: everything above is computed with it.",
    el("div", { class: "row" }, switches?.element ?? null, patch?.element ?? null), effect);
  return { element: switches || patch ? element : null, read, compare, name: (tokens) => patch?.name(tokens) };
}
