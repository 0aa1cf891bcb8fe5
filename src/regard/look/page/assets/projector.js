// Words in the plane that can be searched, chosen, moved and enlarged; what is nearest to the chosen one
// stands beside.
let projectors = 0; // on this page so far: each list of suggestions needs a name of its own
const [CLOSEST, NAME_HEIGHT, MOST_ZOOM] = [24, 14, 40]; // pixels, pixels, times
const OTHERS = 160; // names of points that are neither chosen nor queries for

// The plane of all words: the wheel, a drag, the keys + and − and the arrows change what is seen of it.
function wordPlane(data, state, choose) {
  const box = el("div", { class: "plane" });
  const view = { zoom: 1, x: 0.5, y: 0.5 }; // of the middle, as a share of the plane
  const drawn = data.planes[0].x.length;
  const words = data.words.map((word) => label(word));
  const colours = list("--series").length - 1;
  let [places, size, drag] = [[], [1, 1], null];

  const locate = (width, height) => {
    const plane = data.planes[state.plane];
    const [xs, ys] = [plane.x.map(toNumber), plane.y.map(toNumber)];
    const range = (values) => [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    const [[x0, x1], [y0, y1]] = [range(xs), range(ys)];
    const at = (value, low, high) => 0.04 + (0.92 * (value - low)) / (high - low || 1);
    places = xs.map((x, i) => [
      width * (0.5 + view.zoom * (at(x, x0, x1) - view.x)), height * (0.5 + view.zoom * (1 - at(ys[i], y0, y1) - view.y))]);
  };
  // Names in the order of their importance, each only where it covers no other.
  const names = (width, height, marked, found) => {
    const taken = [];
    const free = (left, top, wide) => !taken.some(([l, t, w]) => left < l + w && left + wide > l && Math.abs(top - t) < NAME_HEIGHT);
    const queries = data.queries.filter((i) => !marked.includes(i));
    const rest = Array.from({ length: drawn }, (_, i) => i).filter((i) => !marked.includes(i) && !data.queries.includes(i));
    const order = [...marked, ...queries, ...rest.filter((i) => found.has(i)), ...rest.filter((i) => !found.has(i))];
    let others = 0;
    return order.flatMap((i) => {
      const [x, y] = places[i];
      if (x < 0 || y < 0 || x > width || y > height) return [];
      const must = i === state.chosen || data.queries.includes(i);
      if (!must && !marked.includes(i) && !found.has(i) && ++others > 4 * OTHERS) return [];
      const wide = 7.2 * words[i].length + 6;
      const options = [[x + 8, y], [x - 8 - wide, y], [x - wide / 2, y - 12], [x - wide / 2, y + 13]]
        .filter(([left]) => left >= 0 && left + wide <= width + 4);
      const fit = options.find(([left, top]) => free(left, top, wide)) ?? (must ? options[0] ?? [x + 8, y] : null);
      if (!fit) return [];
      taken.push([fit[0], fit[1], wide]);
      const strong = must || marked.includes(i) || found.has(i);
      return [svg("text", { class: strong ? "dot-name" : "dot-name quiet", x: fit[0] + 3, y: fit[1] + 4 }, words[i])];
    });
  };
  const draw = (width) => {
    const height = clamp(width * 0.72, 280, 560);
    size = [width, height];
    locate(width, height);
    const near = data.neighbours[state.chosen].filter((i) => i < drawn);
    const marked = [...(state.chosen < drawn ? [state.chosen] : []), ...near];
    const found = new Set(state.found.filter((i) => i < drawn));
    const style = (i) => `fill:${seriesColour(Math.min(data.planes[0].groups[i], colours))}`;
    const dot = (i) => {
      const kind = i === state.chosen ? " marked picked" : near.includes(i) || data.queries.includes(i) ? " marked" : found.has(i) ? " found" : "";
      return svg("circle", { class: `dot${kind}`, cx: places[i][0].toFixed(1), cy: places[i][1].toFixed(1), r: kind ? 5 : 3, style: style(i) });
    };
    const order = Array.from({ length: drawn }, (_, i) => i).sort((a, b) => marked.includes(a) - marked.includes(b));
    const frame = {
      width, height, tabindex: 0, role: "application",
      "aria-label": `${label(data.title) || "words"}: ${drawn} points; arrows move to the next word, plus and minus enlarge, Enter chooses`,
    };
    const drawing = svg("svg", frame, ...order.map(dot), ...names(width, height, marked, found));
    listen(drawing);
    const focused = box.contains(document.activeElement) && document.activeElement.tagName === "svg";
    box.replaceChildren(drawing);
    if (focused) drawing.focus({ preventScroll: true });
  };
  const again = () => {
    if (!box.clientWidth) return; // not yet on the page
    box.style.touchAction = view.zoom > 1 ? "none" : "auto"; // a finger moves what is enlarged
    draw(box.clientWidth);
  };
  const zoom = (factor, [x, y] = [size[0] / 2, size[1] / 2]) => {
    const next = clamp(view.zoom * factor, 1, MOST_ZOOM);
    const shift = 1 / view.zoom - 1 / next;
    view.x += (x / size[0] - 0.5) * shift;
    view.y += (y / size[1] - 0.5) * shift;
    view.zoom = next;
    keep();
    again();
  };
  const keep = () => {
    const room = 0.5 / view.zoom;
    [view.x, view.y] = [clamp(view.x, room, 1 - room), clamp(view.y, room, 1 - room)];
  };
  const show = (i) => { // move so that this point is inside
    if (i >= drawn || !places.length) return;
    const [x, y] = places[i];
    if (x > 20 && y > 20 && x < size[0] - 20 && y < size[1] - 20) return;
    view.x += (x / size[0] - 0.5) / view.zoom;
    view.y += (y / size[1] - 0.5) / view.zoom;
    keep();
  };
  const meant = (event) => {
    const edge = box.getBoundingClientRect();
    const far = ([x, y]) => Math.hypot(x - event.clientX + edge.left, y - event.clientY + edge.top);
    const i = places.reduce((best, place, j) => (best < 0 || far(place) < far(places[best]) ? j : best), -1);
    return i >= 0 && far(places[i]) < CLOSEST ? i : -1;
  };
  const lines = (i) => [words[i], label(data.planes[0].names[data.planes[0].groups[i]])];
  // The nearest point in the direction of an arrow key.
  const toward = ([dx, dy]) => {
    const from = state.chosen < drawn ? places[state.chosen] : [size[0] / 2, size[1] / 2];
    const score = ([x, y]) => {
      const [along, beside] = [(x - from[0]) * dx + (y - from[1]) * dy, Math.abs((x - from[0]) * dy) + Math.abs((y - from[1]) * dx)];
      return along > 1 ? along + 2 * beside : Infinity;
    };
    return places.reduce((best, place, i) => (score(place) < (best < 0 ? Infinity : score(places[best])) ? i : best), -1);
  };
  const listen = (drawing) => {
    drawing.addEventListener("pointermove", (event) => {
      if (drag) return;
      const i = meant(event);
      i >= 0 ? showTip(lines(i), event.clientX, event.clientY) : hideTip();
    });
    drawing.addEventListener("pointerleave", hideTip);
    drawing.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && view.zoom === 1 && event.deltaY > 0) return; // the page scrolls
      event.preventDefault();
      const edge = box.getBoundingClientRect();
      zoom(event.deltaY < 0 ? 1.25 : 0.8, [event.clientX - edge.left, event.clientY - edge.top]);
    }, { passive: false });
    drawing.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, moved: false, from: { ...view } };
      hideTip();
    });
    drawing.addEventListener("click", (event) => {
      if (!drag?.moved && meant(event) >= 0) choose(meant(event));
    });
    drawing.addEventListener("keydown", (event) => {
      const factor = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 }[event.key];
      if (!factor && !(event.key in ARROWS)) return;
      event.preventDefault();
      if (factor) return zoom(factor, state.chosen < drawn ? places[state.chosen] : undefined);
      const next = toward(ARROWS[event.key]);
      if (next >= 0) choose(next);
    });
  };
  addEventListener("pointermove", (event) => {
    if (!drag || !event.buttons) return;
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    view.x = drag.from.x - dx / size[0] / view.zoom;
    view.y = drag.from.y - dy / size[1] / view.zoom;
    keep();
    again();
  });
  addEventListener("pointerup", () => setTimeout(() => (drag = null)));
  onWidth(box, draw);
  const tools = el("span", { class: "zoom" },
    ...[["−", 1 / 1.5, "smaller"], ["+", 1.5, "larger"], ["all", 0, "all words"]].map(([text, factor, name]) =>
      el("button", { type: "button", "aria-label": name, click: () => zoom(factor || 1 / MOST_ZOOM) }, text)));
  return { box, tools, again, show };
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
    el("div", { class: "columns" }, el("div", {}, plane.box, axes), side)];
};
