// Words in the plane that can be searched and chosen; what is nearest to the chosen one stands beside.
let projectors = 0; // on this page so far: each list of suggestions needs a name of its own

renderers.projector = (data) => {
  const words = data.words.map((word) => label(word));
  const places = new Map(words.slice(0, data.neighbours.length).map((word, i) => [word, i]).toReversed());
  const folded = new Map([...places].map(([word, i]) => [word.toLowerCase(), i]));
  const drawn = data.planes[0].x.length;
  const options = el("datalist", { id: `words-${projectors++}` });
  const search = el("input", { type: "search", list: options.id, placeholder: "a word", "aria-label": "look a word up", autocomplete: "off", spellcheck: "false" });
  const told = el("p", { class: "readout", role: "status" });
  const near = el("ol", { class: "near" });
  let plane = 0;
  const chart = el("div", { class: "scatter" });
  let chosen = data.chosen;
  const draw = () => {
    const shown = data.planes[plane];
    const marks = [...data.neighbours[chosen].toReversed(), chosen].filter((i) => i < drawn).map((i) => [i, data.words[i]]);
    const parts = renderers.scatter({ ...shown, marks, title: "" }, (i) => choose(i));
    chart.replaceChildren(...parts.filter((part) => part !== null));
  };
  const choose = (i) => {
    chosen = i;
    search.value = words[i];
    near.replaceChildren(...data.neighbours[i].map((other, k) => {
      const known = other < data.neighbours.length;
      const name = known ? el("button", { type: "button", click: () => choose(other) }, words[other]) : el("span", {}, words[other]);
      return el("li", {}, name, el("span", { class: "number" }, toNumber(data.similarities[i][k]).toFixed(3)));
    }));
    told.replaceChildren(el("strong", {}, words[i]), i < drawn ? "" : ": not among the points, which are the most frequent words");
    draw();
  };
  // only a few suggestions at a time: thousands would stall some browsers
  search.addEventListener("input", () => {
    const text = search.value.trim().toLowerCase();
    const fits = text ? words.slice(0, data.neighbours.length).filter((word) => word.toLowerCase().startsWith(text)).slice(0, 20) : [];
    options.replaceChildren(...fits.map((word) => el("option", { value: word })));
    const found = places.get(search.value.trim()) ?? folded.get(text);
    if (found !== undefined && found !== chosen) {
      const typed = search.value;
      choose(found);
      search.value = typed;
    }
  });
  search.addEventListener("change", () => {
    const text = search.value.trim();
    if (text && !places.has(text) && !folded.has(text.toLowerCase())) told.replaceChildren(`${text}: no such word here`);
  });
  const ways = data.planes.map((one, i) =>
    el("button", { type: "button", "aria-pressed": String(i === 0), click: (event) => {
      plane = i;
      ways.forEach((way) => way.setAttribute("aria-pressed", String(way === event.currentTarget)));
      draw();
    } }, label(one.title)));
  choose(chosen);
  const side = el("div", { class: "side" }, el("label", {}, "Look up ", search), options, told, el("p", { class: "caption" }, "nearest, by the cosine"), near);
  return [heading(data.title), el("div", { class: "toggle" }, ...ways), el("div", { class: "columns" }, chart, side)];
};
