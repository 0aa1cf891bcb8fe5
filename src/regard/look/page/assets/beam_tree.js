// The hypotheses of a beam search: one column per step, the winner's path drawn through them.
const [STEP_WIDTH, LEAF_HEIGHT, LONGEST_TOKEN, TOKEN_WIDTH] = [96, 24, 9, 60];

// A long token is cut by a box, not in its text, which is what the node is called.
function drawToken(token) {
  const long = Array.from(token).length > LONGEST_TOKEN;
  const text = svg("text", { x: 0, y: LEAF_HEIGHT - 8 }, token);
  const box = svg("svg", { x: 7, y: 3 - LEAF_HEIGHT, width: long ? TOKEN_WIDTH : "100%", height: LEAF_HEIGHT }, text);
  return [box, svg("text", { x: 7 + TOKEN_WIDTH, y: -5 }, long ? "…" : "")];
}

// The best path is a straight line at the top; the first child of a node is as high as the node, the others start
// rows of their own below. Without recursion: a search may be thousands of steps deep.
function treeLayout(nodes, best) {
  const children = new Map(nodes.map((node) => [node.id, []]));
  const roots = nodes.filter((node) => node.parent === null);
  for (const node of nodes) children.get(node.parent)?.push(node);
  const order = (a, b) => best.has(b.id) - best.has(a.id) || toNumber(b.score) - toNumber(a.score);
  for (const below of [...children.values(), roots]) below.sort(order);
  const firstStep = nodes.reduce((a, node) => Math.min(a, node.step), Infinity);
  const places = new Map();
  let rows = 0;
  const push = (stack, below, row) => below.toReversed().forEach((node, i) => stack.push([node, i === below.length - 1 ? row : null]));
  const stack = [];
  push(stack, roots, 0);
  while (stack.length) {
    const [node, row] = stack.pop();
    const at = row ?? ++rows;
    places.set(node.id, { x: 10 + (node.step - firstStep) * STEP_WIDTH, y: (at + 1) * LEAF_HEIGHT, row: at });
    push(stack, children.get(node.id), at);
  }
  return { places, children, height: (rows + 2) * LEAF_HEIGHT };
}

// Scores are log-probabilities in nats; the page has one unit.
function inBits(node) {
  const score = toNumber(node.score);
  return `${format(-score / Math.LN2)} bits, probability ${format(Math.exp(score), 3)}`;
}

// What the marks mean, drawn as they are drawn in the tree.
function treeLegend() {
  const key = (name, finished, words) => el("span", { class: "key" },
    svg("svg", { width: 30, height: 14 }, svg("path", { class: `line ${name}`, d: "M1 8H20" }),
      svg("g", { class: `mark ${name}${finished ? " finished" : ""}`, transform: "translate(22 8)" }, svg("circle", { r: 4 }))), words);
  return el("div", { class: "legend" }, key("best", false, "best path"), key("kept", false, "kept"), key("pruned", false, "pruned"),
    key("kept", true, "finished"));
}

renderers["beam-tree"] = (data) => {
  const best = new Set(data.path);
  const { places, children, height } = treeLayout(data.nodes, best);
  const byId = new Map(data.nodes.map((node) => [node.id, node]));
  const classOf = (node) => (best.has(node.id) ? "best" : node.kept ? "kept" : "pruned");
  const rank = (node) => (best.has(node.id) ? 2 : node.kept ? 1 : 0);
  const draw = (node) => {
    const { x, y } = places.get(node.id);
    const fate = { best: "on the best path", kept: "kept", pruned: "pruned" }[classOf(node)];
    const status = node.finished ? `${fate}, finished` : fate;
    const shown = visible(node.token);
    const score = inBits(node);
    const group = svg("g",
      {
        class: `node ${classOf(node)}${node.finished ? " finished" : ""}`, transform: `translate(${x} ${y})`, role: "treeitem",
        "aria-label": `${shown}, step ${node.step}, ${score}, ${status}`,
      },
      svg("rect", { x: -6, y: -LEAF_HEIGHT + 5, width: STEP_WIDTH - 12, height: LEAF_HEIGHT, fill: "transparent" }),
      svg("circle", { r: best.has(node.id) ? 5 : 4 }), ...drawToken(shown));
    return withTip(group, () => [shown, `the text up to here: ${score}`, `step ${node.step}, ${status}`]);
  };
  const edges = data.nodes.filter((node) => node.parent !== null).sort((a, b) => rank(a) - rank(b)); // the best path over all
  const lines = edges.map((node) => {
    const [from, to] = [places.get(node.parent), places.get(node.id)];
    const bend = to.x - 16; // names stand above the lines: nothing crosses them
    const d = from.y === to.y ? `M${from.x + 5} ${from.y}H${to.x - 5}` : `M${from.x + 5} ${from.y}H${bend}V${to.y}H${to.x - 5}`;
    return svg("path", { class: `edge ${classOf(node)}`, d });
  });
  const groups = new Map(data.nodes.map((node) => [node.id, draw(node)]));
  const width = [...places.values()].reduce((a, { x }) => Math.max(a, x), 0) + STEP_WIDTH;
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
    treeLegend(),
    el("p", { class: "hint" }, `Best: ${words}: ${inBits(winner)}.`)];
};
