// One head as lines between the tokens that look (left) and the tokens looked at (right).
const TOKEN_HEIGHT = 19; // as in page.css
const MOST_LINES = 1500; // drawn while no token is chosen: the strongest

function strongest(matrix) {
  const threshold = matrix.rows * matrix.columns > 40000 ? 0.02 : 0.002;
  const lines = [];
  for (let r = 0; r < matrix.rows; r++)
    for (let c = 0; c < matrix.columns; c++) if (matrix.get(r, c) > threshold) lines.push([r, c, matrix.get(r, c)]);
  return lines.sort((a, b) => b[2] - a[2]).slice(0, MOST_LINES);
}

function drawArcs(canvas, lines, width, height, faint) {
  const context = canvasOf(canvas, width, height);
  context.strokeStyle = css("--accent");
  for (const [r, c, weight] of lines) {
    const [from, to] = [(r + 0.5) * TOKEN_HEIGHT, (c + 0.5) * TOKEN_HEIGHT];
    context.globalAlpha = Math.min(1, 0.05 + 0.95 * (faint ? weight : Math.sqrt(weight)));
    context.lineWidth = 0.6 + 2.6 * weight;
    context.beginPath();
    context.moveTo(0, from);
    context.bezierCurveTo(width / 2, from, width / 2, to, width, to);
    context.stroke();
  }
}

function arcsView(matrix, tokens, sources) {
  const canvas = el("canvas");
  const between = el("div", {}, canvas);
  const readout = el("p", { class: "readout", role: "status" });
  const item = (text, i) => el("span", { class: "token", "data-i": i }, text);
  const column = (name, texts) => el("div", { class: `side ${name}` }, ...texts.map(item));
  const sides = [column("queries", tokens), column("keys-looked-at", sources)];
  const items = sides.map((side) => [...side.children]);
  const all = strongest(matrix);
  const height = Math.max(tokens.length, sources.length) * TOKEN_HEIGHT;
  let chosen = null; // [side, index]
  const hint = "Choose a token: on the left what it looks at, on the right who looks at it.";

  const draw = () => {
    const [side, i] = chosen ?? [0, -1];
    const other = Array.from({ length: i < 0 ? 0 : items[1 - side].length }, (_, j) => (side ? [j, i] : [i, j]))
      .map(([r, c]) => [r, c, matrix.get(r, c)]);
    drawArcs(canvas, i < 0 ? all : other.filter((line) => line[2] > 0.0005), between.clientWidth, height, i < 0);
    items.flat().forEach((token) => {
      token.classList.remove("chosen");
      token.style.background = token.style.color = "";
    });
    if (i < 0) return void (readout.textContent = hint);
    items[side][i].classList.add("chosen");
    const scale = scaleOf("sequential", [0, 1], true);
    other.forEach(([r, c, weight], j) => {
      const colour = scale(weight);
      if (weight > 0.0005) items[1 - side][j].style.cssText = `background:${rgb(colour)};color:${inkOn(colour)}`;
    });
    const words = other
      .filter(([, , weight]) => weight > 0)
      .sort((a, b) => b[2] - a[2])
      .slice(0, 5)
      .map(([r, c, weight]) => `${side ? tokens[r] : sources[c]} ${format(weight, 3)}`);
    const verb = side ? "is looked at by" : "looks at";
    readout.textContent = `${(side ? sources : tokens)[i]} (${i + 1}) ${verb}: ${words.join(", ") || "nothing"}`;
  };
  const choose = (event) => {
    const token = event.target.closest(".token");
    if (!token) return;
    chosen = [sides.indexOf(token.parentElement), Number(token.dataset.i)];
    draw();
  };
  const box = el("div", { class: "arcs", role: "group", "aria-label": "who looks at whom" },
    el("div", { class: "head", style: "text-align:right" }, "looks"),
    el("div", { class: "head" }),
    el("div", { class: "head" }, "is looked at"),
    sides[0], between, sides[1]);
  const leave = () => {
    chosen = null;
    draw();
  };
  box.addEventListener("pointerover", choose);
  box.addEventListener("focusin", choose);
  box.addEventListener("pointerleave", leave);
  box.addEventListener("focusout", leave);
  rove(box, items.flat(), (token, dx, dy) => {
    const side = items[clamp(sides.indexOf(token.parentElement) + dx, 0, 1)];
    return side[Math.min(Number(token.dataset.i) + dy, side.length - 1)];
  });
  onWidth(between, draw);
  return el("div", {}, box, readout);
}
