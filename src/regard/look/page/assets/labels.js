// Names beside what they name, for more classes than there are colours. All functions return SVG elements.
const LABEL_HEIGHT = 13;

// Names at the ends of curves: moved apart vertically, in their order, within [top, bottom].
function endLabels(items, x, [top, bottom]) {
  const sorted = [...items].sort((a, b) => a.y - b.y);
  const ys = [];
  sorted.forEach((item, i) => ys.push(Math.max(item.y, i ? ys[i - 1] + LABEL_HEIGHT : top)));
  for (let i = ys.length - 1, floor = bottom; i >= 0; i--, floor = ys[i + 1] - LABEL_HEIGHT) ys[i] = Math.min(ys[i], floor);
  return sorted.flatMap((item, i) => [
    svg("path", { class: "leader", d: `M${item.x + 3} ${item.y}L${x - 3} ${ys[i]}`, stroke: item.colour }),
    svg("text", { class: "direct", x, y: ys[i] + 4 }, item.name),
  ]);
}

// Names at the middles of groups of points: {name, points: [[x, y], …]}; a name that would cover another moves down.
function middleLabels(groups, height) {
  const middle = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
  const boxes = [];
  return groups.filter(({ points }) => points.length).map(({ name, points }) => {
    const [x, wide] = [middle(points.map((p) => p[0])), 7 * name.length + 8];
    let y = middle(points.map((p) => p[1]));
    const covered = () => boxes.some(([a, b, at]) => x - wide / 2 < b && x + wide / 2 > a && Math.abs(y - at) < LABEL_HEIGHT);
    while (covered() && y < height) y += LABEL_HEIGHT;
    boxes.push([x - wide / 2, x + wide / 2, y]);
    return svg("text", { class: "direct", x, y: y + 4, "text-anchor": "middle" }, name);
  });
}

// Names beside single points {name, x, y}, to their right or, near the edge, to their left; one that would cover
// another moves up or down, within [top, bottom].
function pointLabels(points, right, [top, bottom]) {
  const boxes = [];
  return [...points].sort((a, b) => a.y - b.y).map(({ name, x, y }) => {
    const wide = 6.6 * name.length + 12;
    const left = x + wide > right;
    const from = left ? x - wide : x;
    const free = (at) => at > top && at < bottom && !boxes.some(([a, b, c]) => from < b && from + wide > a && Math.abs(at - c) < LABEL_HEIGHT);
    const shift = [0, -1, 1, -2, 2, -3, 3].find((n) => free(y + n * LABEL_HEIGHT)) ?? 0;
    const at = y + shift * LABEL_HEIGHT;
    boxes.push([from, from + wide, at]);
    return svg("text", { class: "direct", x: x + (left ? -9 : 9), y: at + 4, "text-anchor": left ? "end" : "start" }, name);
  });
}
