// The hypotheses of a beam search: one column per step, the winner's path drawn through them.
const [STEP_WIDTH, LEAF_HEIGHT, LONGEST_TOKEN] = [104, 23, 10];

function shorten(text) {
  const characters = Array.from(text);
  return characters.length > LONGEST_TOKEN ? characters.slice(0, LONGEST_TOKEN - 1).join("") + "…" : text;
}

function treeLayout(nodes) {
  const children = new Map(nodes.map((node) => [node.id, []]));
  const roots = nodes.filter((node) => node.parent === null);
  for (const node of nodes) children.get(node.parent)?.push(node);
  for (const below of [...children.values(), roots]) below.sort((a, b) => toNumber(b.score) - toNumber(a.score));
  const firstStep = nodes.reduce((a, node) => Math.min(a, node.step), Infinity);
  const places = new Map();
  let leaves = 0;
  // Children before parents, without recursion: a search may be thousands of steps deep.
  const stack = roots.map((node) => [node, false]).reverse();
  while (stack.length) {
    const [node, seen] = stack.pop();
    const below = children.get(node.id);
    if (!seen && below.length) {
      stack.push([node, true], ...below.map((child) => [child, false]).reverse());
      continue;
    }
    const ys = below.map((child) => places.get(child.id).y);
    const y = ys.length ? (ys[0] + ys[ys.length - 1]) / 2 : (leaves++ + 0.5) * LEAF_HEIGHT;
    places.set(node.id, { x: 10 + (node.step - firstStep) * STEP_WIDTH, y });
  }
  return { places, children, height: leaves * LEAF_HEIGHT };
}

renderers["beam-tree"] = (data) => {
  const { places, children, height } = treeLayout(data.nodes);
  const best = new Set(data.path);
  const byId = new Map(data.nodes.map((node) => [node.id, node]));
  const classOf = (node) => (best.has(node.id) ? "best" : node.kept ? "kept" : "pruned");
  const draw = (node) => {
    const { x, y } = places.get(node.id);
    const fate = { best: "on the best path", kept: "kept", pruned: "pruned" }[classOf(node)];
    const status = node.finished ? `${fate}, finished` : fate;
    const shown = visible(node.token);
    const score = format(toNumber(node.score));
    const group = svg("g",
      {
        class: `node ${classOf(node)}${node.finished ? " finished" : ""}`, transform: `translate(${x} ${y})`, role: "treeitem",
        "aria-label": `${shown}, step ${node.step}, log-probability ${score}, ${status}`,
      },
      svg("rect", { x: -6, y: -LEAF_HEIGHT / 2, width: STEP_WIDTH - 12, height: LEAF_HEIGHT, fill: "transparent" }),
      svg("circle", { r: best.has(node.id) ? 5 : 4 }), svg("text", { x: 9, y: 4 }, shorten(shown)));
    return withTip(group, () => [shown, `cumulative log-probability ${score}`, `step ${node.step}, ${status}`]);
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
  return [heading(data.title), el("div", { class: "scroll" }, drawing),
    el("p", { class: "hint" }, `Best: ${words} with log-probability ${format(toNumber(winner.score))}. `,
      "Grey nodes were pruned, filled ones are finished.")];
};
