// A molecule with its atoms coloured by what each of them does to a prediction.
const LARGEST_STRUCTURE = 420; // pixels

renderers["molecule-maps"] = (data) => {
  const maps = unpack(data.maps);
  const [count, , atoms] = maps.shape;
  const value = (map, atom) => maps.get(map * atoms + atom);
  const reachOf = (map) => {
    let reach = 0;
    for (let i = 0; i < atoms; i++) if (Number.isFinite(value(map, i))) reach = Math.max(reach, Math.abs(value(map, i)));
    return reach || 1;
  };
  const names = data.names.map(label);
  const views = names.map((name, map) => {
    const box = el("div", { class: "view" });
    onWidth(box, () => {
      const scale = scaleOf("diverging", [-reachOf(map), reachOf(map)]);
      const lines = (i) => [`${label(data.atoms[i][0])} (atom ${i + 1})`, Number.isFinite(value(map, i)) ? `${value(map, i) > 0 ? "+" : ""}${format(value(map, i), 3)} ${label(data.unit)}` : "no change of it is a molecule"];
      const discs = data.atoms.map(([, cx, cy], i) => svg("circle", { cx, cy, r: 11, class: Number.isFinite(value(map, i)) ? "atom" : "atom unknown", style: Number.isFinite(value(map, i)) ? `fill: ${rgb(scale(value(map, i)))}` : "" }));
      const halos = data.paths.map(([d, , weight]) => svg("path", { d, class: "halo", "stroke-width": weight + 2.5 })); // lines are read on any colour
      const hits = data.atoms.map(([symbol, cx, cy], i) => withTip(svg("circle", { cx, cy, r: 12, fill: "transparent", "aria-label": lines(i).join(": ") }), () => lines(i)));
      const drawing = structureOf(data, { "aria-label": `${name}: ${data.atoms.length} atoms; arrow keys read them`, style: `max-width:${LARGEST_STRUCTURE}px` }, [...discs, ...halos], hits);
      rove(drawing, hits, (hit, dx, dy) => hits[hits.indexOf(hit) + (dx || dy)]);
      box.replaceChildren(drawing);
    });
    return el("div", {}, el("h5", {}, name), box, colourBar("diverging", -reachOf(map), reachOf(map), label(data.unit)));
  });
  return [heading(data.title), el("div", { class: "split" }, ...views)];
};
