// Words in the plane that can be searched, chosen, moved and enlarged; what is nearest to the chosen one
// stands beside.
let projectors = 0; // on this page so far: each list of suggestions needs a name of its own

// The plane of all words in one of its layouts.
function wordPlane(data, state, choose) {
  const words = data.words.map((word) => label(word));
  const colours = list("--series").length - 1;
  const groups = data.planes[0].groups;
  const [place, tools] = [el("div"), el("span")];
  let plane = null;
  const palette = () => list("--series");
  const code = (i) => Math.min(groups[i], colours);
  const lines = (i) => [words[i], label(data.planes[0].names[groups[i]])];
  const again = () => {
    const near = data.neighbours[state.chosen].filter((i) => i < groups.length);
    const chosen = state.chosen < groups.length ? state.chosen : -1;
    plane.update({ palette, code, chosen, marked: near, found: new Set(state.found.filter((i) => i < groups.length)), always: data.queries });
  };
  const lay = () => {
    const { x, y } = data.planes[state.plane];
    const points = x.flatMap((value, i) => [toNumber(value), toNumber(y[i])]);
    plane = canvasPlane({ points, names: words.slice(0, groups.length), title: data.title || "words", choose, walk: choose, lines });
    place.replaceChildren(plane.box);
    tools.replaceChildren(plane.tools);
  };
  lay();
  return { place, tools, again, lay, show: (i) => plane.show(i) };
}

renderers.projector = (data) => {
  const words = data.words.map((word) => label(word));
  const known = words.slice(0, data.neighbours.length);
  const places = new Map(known.map((word, i) => [word, i]).toReversed());
  const folded = new Map([...places].map(([word, i]) => [word.toLowerCase(), i]));
  const drawn = data.planes[0].x.length;
  const options = el("datalist", { id: `words-${projectors++}` });
  const search = el("input", { type: "search", list: options.id, placeholder: "a word, or /a pattern/", "aria-label": "look a word up", autocomplete: "off", spellcheck: "false" });
  const told = el("p", { class: "readout", role: "status" });
  const near = el("ol", { class: "near" });
  const state = { plane: 0, chosen: data.chosen, found: [] };
  const choose = (i) => {
    state.chosen = i;
    if (!state.found.length) search.value = words[i];
    near.replaceChildren(...data.neighbours[i].map((other, k) => {
      const name = other < data.neighbours.length ? el("button", { type: "button", click: () => choose(other) }, words[other]) : el("span", {}, words[other]);
      return el("li", {}, name, el("span", { class: "number" }, toNumber(data.similarities[i][k]).toFixed(3)));
    }));
    told.replaceChildren(el("strong", {}, words[i]), i < drawn ? "" : ": not among the points, which are the most frequent words");
    plane.show(i);
    plane.again();
  };
  const plane = wordPlane(data, state, (i) => choose(i));
  // /…/ is a regular expression: all words that match are named on the map.
  const matching = (text) => {
    const [, pattern] = text.match(/^\/(.+?)\/?$/) ?? [];
    if (!pattern) return null;
    try {
      const expression = new RegExp(pattern, "iu");
      return known.map((word, i) => i).filter((i) => expression.test(known[i]));
    } catch {
      return [];
    }
  };
  // only a few suggestions at a time: thousands would stall some browsers
  search.addEventListener("input", () => {
    const text = search.value.trim().toLowerCase();
    const matches = matching(search.value.trim());
    state.found = matches ?? [];
    if (matches) {
      const seen = matches.filter((i) => i < drawn).length;
      told.replaceChildren(`${format(matches.length)} of ${format(known.length)} words match, ${format(seen)} of them on the map`);
      return plane.again();
    }
    const fits = text ? known.filter((word) => word.toLowerCase().startsWith(text)).slice(0, 20) : [];
    options.replaceChildren(...fits.map((word) => el("option", { value: word })));
    const found = places.get(search.value.trim()) ?? folded.get(text);
    if (found === undefined || found === state.chosen) return plane.again();
    const typed = search.value;
    choose(found);
    search.value = typed;
  });
  search.addEventListener("change", () => {
    const text = search.value.trim();
    if (text && !matching(text) && !places.has(text) && !folded.has(text.toLowerCase())) told.replaceChildren(`${text}: no such word here`);
  });
  const axes = el("p", { class: "hint" });
  const describe = () => {
    const { x_label, y_label } = data.planes[state.plane];
    axes.textContent = x_label ? `across: ${label(x_label)}; up: ${label(y_label)}` : "Only who is near whom means something here: directions and distances do not.";
  };
  const ways = data.planes.map((one, i) =>
    el("button", { type: "button", "aria-pressed": String(i === 0), click: (event) => {
      state.plane = i;
      plane.lay();
      ways.forEach((way) => way.setAttribute("aria-pressed", String(way === event.currentTarget)));
      describe();
      plane.again();
    } }, label(one.title)));
  const swatches = data.planes[0].names.map(() => el("i"));
  const keys = el("div", { class: "keys" }, ...swatches.map((swatch, i) => el("span", {}, swatch, label(data.planes[0].names[i]))));
  onWidth(keys, () => swatches.forEach((swatch, i) => (swatch.style.background = seriesColour(i))));
  describe();
  choose(state.chosen);
  const side = el("div", { class: "side" }, el("label", {}, "Look up ", search), options, told, el("p", { class: "caption" }, "nearest, by the cosine"), near);
  return [heading(data.title), el("div", { class: "toolbar" }, el("div", { class: "toggle" }, ...ways), plane.tools), keys,
    el("div", { class: "columns" }, el("div", {}, plane.place, axes), side)];
};
