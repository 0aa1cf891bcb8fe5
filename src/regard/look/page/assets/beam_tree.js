// The hypotheses of a beam search: one column per step, the best path a straight line at the top.
const [STEP_WIDTH, LEAF_HEIGHT, LONGEST_TOKEN] = [104, 23, 10];

function shorten(text) {
  const characters = Array.from(text);
  return characters.length > LONGEST_TOKEN ? characters.slice(0, LONGEST_TOKEN - 1).join("") + "…" : text;
}

// A node stands at the height of its first child: that on the best path, else the most probable one.
function treeLayout(nodes, best) {
  const children = new Map(nodes.map((node) => [node.id, []]));
  const roots = nodes.filter((node) => node.parent === null);
  for (const node of nodes) children.get(node.parent)?.push(node);
  const first = (a, b) => best.has(b.id) - best.has(a.id) || toNumber(b.score) - toNumber(a.score);
  for (const below of [...children.values(), roots]) below.sort(first);
  const firstStep = nodes.reduce((a, node) => Math.min(a, node.step), Infinity);
  const places = new Map();
  let leaves = 0;
  // Without recursion: a search may be thousands of steps deep.
  const stack = roots.map((node) => [node, null]).reverse();
  while (stack.length) {
    const [node, height] = stack.pop();
    const y = height ?? (leaves++ + 0.5) * LEAF_HEIGHT;
    places.set(node.id, { x: 10 + (node.step - firstStep) * STEP_WIDTH, y });
    stack.push(...children.get(node.id).map((child, i) => [child, i ? null : y]).reverse());
  }
  return { places, children, height: leaves * LEAF_HEIGHT };
}

// How the nodes look, as a legend: the same marks as in the tree.
function treeLegend() {
  const sign = (name, text) => {
    const mark = svg("g", { class: `node ${name}`, transform: "translate(8 8)" }, ...nodeMarks(name.includes("finished"), name === "best"));
    return el("span", {}, svg("svg", { width: 16, height: 16, "aria-hidden": "true" }, mark), text);
  };
  return el("div", { class: "legend" }, sign("best", "on the best path"), sign("kept", "kept"), sign("kept finished", "finished"), sign("pruned", "pruned"));
}
const nodeMarks = (finished, best) =>
  [svg("circle", { r: best ? 5 : 4 }), finished ? svg("circle", { class: "ring", r: best ? 7.5 : 6.5 }) : null].filter(Boolean);

renderers["beam-tree"] = (data) => {
  const best = new Set(data.path);
  const { places, children, height } = treeLayout(data.nodes, best);
  const byId = new Map(data.nodes.map((node) => [node.id, node]));
  const classOf = (node) => (best.has(node.id) ? "best" : node.kept ? "kept" : "pruned");
  const inBits = (node) => `${format(toNumber(node.score) / Math.LN2)} bits`; // log₂ of the probability
  const draw = (node) => {
    const { x, y } = places.get(node.id);
    const fate = { best: "on the best path", kept: "kept", pruned: "pruned" }[classOf(node)];
    const status = node.finished ? `${fate}, finished` : fate;
    const shown = visible(node.token);
    const group = svg("g",
      {
        class: `node ${classOf(node)}${node.finished ? " finished" : ""}`, transform: `translate(${x} ${y})`, role: "treeitem",
        "aria-label": `${shown}, step ${node.step}, log-probability ${inBits(node)}, ${status}`,
      },
      svg("rect", { x: -6, y: -LEAF_HEIGHT / 2, width: STEP_WIDTH - 12, height: LEAF_HEIGHT, fill: "transparent" }),
      ...nodeMarks(node.finished, best.has(node.id)), svg("text", { x: 11, y: 4 }, shorten(shown)));
    return withTip(group, () => [shown, `log-probability up to here ${inBits(node)}`, `step ${node.step}, ${status}`]);
  };
  const edges = data.nodes.filter((node) => node.parent !== null).sort((a, b) => best.has(a.id) - best.has(b.id));
  const lines = edges.map((node) => {
    const [from, to] = [places.get(node.parent), places.get(node.id)];
    const [start, bend] = [from.x + STEP_WIDTH - 24, from.x + STEP_WIDTH - 10];
    const d = `M${from.x + 5} ${from.y} H${start} C${bend} ${from.y} ${bend} ${to.y} ${to.x - 5} ${to.y}`;
    return svg("path", { class: `edge ${classOf(node)}`, d });
  });
  const groups = new Map(data.nodes.map((node) => [node.id, draw(node)]));
  const width = Math.max(...[...places.values()].map(({ x }) => x)) + STEP_WIDTH;
  const frame = { width, height: height + 6, role: "tree", "aria-label": label(data.title) || "beam search" };
  const drawing = svg("svg", frame, ...lines, ...groups.values());
  const siblings = (node) => data.nodes
    .filter((other) => other.step === node.step)
    .sort((a, b) => places.get(a.id).y - places.get(b.id).y);
  const items = [...groups.values()];
  const ids = [...groups.keys()];
  rove(drawing, items, (item, dx, dy) => {
    const node = byId.get(ids[items.indexOf(item)]);
    const column = siblings(node);
    const to = dx < 0 ? byId.get(node.parent) : dx > 0 ? children.get(node.id)[0] : column[column.indexOf(node) + dy];
    return to && groups.get(to.id);
  });
  const winner = byId.get(data.path[data.path.length - 1]);
  const words = data.path.map((id) => visible(byId.get(id).token)).join(" ");
  return [heading(data.title), el("div", { class: "scroll" }, drawing), treeLegend(),
    el("p", { class: "hint" }, `Best: ${words}, with log-probability ${inBits(winner)}, the logarithm to base 2.`)];
};
