// A text coloured by how many bits each symbol cost, or by what each adds to a score, below zero too; one
// panel per model, on one scale.
const STRIP_HEIGHT = 54;
const SHORT = 12; // tokens up to which several panels fit beside each other on a phone
const MOST_COLUMNS = 240; // tokens that have each their bar below; of longer texts one strip shows all

function drawStrip(canvas, bits, low, most, scale, width) {
  const context = canvasOf(canvas, width, STRIP_HEIGHT);
  const step = width / bits.length;
  const place = (value) => STRIP_HEIGHT - 1 - ((value - low) / (most - low)) * (STRIP_HEIGHT - 2);
  const zero = place(0);
  // Where several symbols share a pixel the greatest is drawn last, so that no peak is hidden.
  const order = bits.map((_, i) => i).sort((a, b) => Math.abs(bits[a]) - Math.abs(bits[b]));
  for (const i of order) {
    if (Number.isNaN(bits[i])) continue;
    const end = place(Math.min(bits[i], most));
    const height = Math.max(1, Math.abs(zero - end));
    context.fillStyle = Number.isFinite(bits[i]) ? rgb(scale(0.25 * Math.sign(bits[i]) * most + 0.75 * bits[i])) : css("--warn");
    context.fillRect(i * step, end < zero ? zero - height : zero, Math.max(1, step > 4 ? step - 1 : step), height);
  }
  context.fillStyle = css("--line");
  context.fillRect(0, zero, width, 1);
}

function surpriseToken(token, i, single, columns) {
  const text = token === "\n" && !columns ? "↵\n" : visible(token);
  return el("span", { class: single ? "token" : "token word", "data-i": i }, text);
}

// A token with its bar below it: a line of them reads as a bar chart, and wraps as text does.
function column(token, i, ends) {
  const bar = el("i", { class: "bar" });
  return { bar, cell: [el("span", { class: "cell", "data-i": i }, token, el("span", { class: "track" }, bar)), ends ? el("br") : ""] };
}

function drawColumn(bar, bits, low, most, scale) {
  const [zero, end] = [0, clamp(bits, low, most)].map((value) => (100 * (value - low)) / (most - low));
  bar.style.bottom = `${Math.min(zero, end)}%`;
  bar.style.height = `${Math.abs(end - zero)}%`;
  bar.style.background = Number.isFinite(bits) ? rgb(scale(0.25 * Math.sign(bits) * most + 0.75 * bits)) : css("--warn");
}

renderers.surprise = (data) => {
  const rows = data.rows.map((row) => ({ name: label(row.name), bits: row.bits.map(toNumber) }));
  const finite = rows.flatMap((row) => row.bits.filter(Number.isFinite));
  const most = data.signed ? finite.reduce((a, b) => Math.max(a, Math.abs(b)), 0) || 1 : Math.max(1, finite.reduce((a, b) => Math.max(a, b), 0));
  const low = finite.reduce((a, b) => Math.min(a, b), 0);
  const unit = data.signed ? label(data.unit) : "bits";
  const colours = low < 0 ? "diverging" : "warm";
  const scaleNow = () => scaleOf(colours, [low < 0 ? -most : 0, most]);
  const single = data.tokens.every((token) => Array.from(token).length <= 1);
  const words = (bits) => {
    if (Number.isNaN(bits)) return "not scored";
    if (data.signed) return `${bits > 0 ? "+" : ""}${format(bits, 3)} ${unit}`;
    if (bits === Infinity) return "impossible (probability 0)";
    return `${format(bits, 3)} bits, probability ${format(2 ** -bits, 3)}`;
  };
  const lines = (i) => [`${visible(data.tokens[i])} (${i + 1})`,
    ...rows.map((row) => (rows.length > 1 ? `${row.name}: ` : "") + words(row.bits[i]))];
  const few = data.tokens.length <= MOST_COLUMNS;
  const panels = rows.map((row) => {
    const tokens = data.tokens.map((token, i) => surpriseToken(token, i, single, few));
    const scored = row.bits.filter((b) => !Number.isNaN(b));
    const never = scored.filter((b) => b === Infinity).length;
    const mean = scored.reduce((a, b) => a + b, 0) / (scored.length || 1);
    const strip = el("canvas", { role: "img", "aria-label": `${unit} per symbol, ${row.name}` });
    const columns = few ? tokens.map((token, i) => column(token, i, data.tokens[i] === "\n")) : null;
    const reading = { class: "text", tabindex: 0, role: "group", "aria-label": `${row.name}; arrow keys read it` };
    const text = el("div", reading, ...(columns ? columns.flatMap(({ cell }) => cell) : tokens));
    const bits = `mean ${format(mean, 3)} bits${never ? `, ${format(never)} impossible` : ""}`;
    const facts = data.signed ? `in all ${format(mean * scored.length, 3)}` : bits;
    const panel = el("div", { class: "panel" }, el("h4", {}, row.name, " ", el("span", {}, facts)), text, columns ? null : strip);
    onWidth(panel, (width) => {
      const scale = scaleNow();
      tokens.forEach((token, i) => {
        const bits = row.bits[i];
        token.classList.toggle("impossible", bits === Infinity);
        token.classList.toggle("unscored", Number.isNaN(bits));
        if (Number.isNaN(bits)) return;
        token.style.background = rgb(scale(bits));
        token.style.color = inkOn(scale(bits));
      });
      if (columns) columns.forEach(({ bar }, i) => !Number.isNaN(row.bits[i]) && drawColumn(bar, row.bits[i], low, most, scale));
      else drawStrip(strip, row.bits, low, most, scale, width);
    });
    return { panel, tokens, text, strip };
  });

  let chosen = -1;
  const choose = (i, x, y) => {
    for (const { tokens } of panels) {
      tokens[chosen]?.classList.remove("chosen");
      tokens[i]?.classList.add("chosen");
    }
    chosen = i;
    i < 0 ? hideTip() : showTip(lines(i), x, y);
  };
  for (const { panel, tokens, text, strip } of panels) {
    panel.addEventListener("pointermove", (event) => {
      const token = event.target.closest("[data-i]");
      const edge = strip.getBoundingClientRect();
      const under = Math.floor(((event.clientX - edge.left) / edge.width) * tokens.length);
      const i = token ? Number(token.dataset.i) : event.target === strip ? under : -1;
      choose(clamp(i, -1, tokens.length - 1), event.clientX, event.clientY);
    });
    panel.addEventListener("pointerleave", () => choose(-1));
    text.addEventListener("blur", () => choose(-1));
    text.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      const i = clamp(chosen + ARROWS[event.key][0], 0, tokens.length - 1);
      tokens[i].scrollIntoView({ block: "nearest" });
      const edge = tokens[i].getBoundingClientRect();
      choose(i, edge.right, edge.bottom);
    });
  }
  const short = data.tokens.length <= SHORT && rows.length > 1;
  const side = el("div", { class: short ? "panels short" : "panels" }, ...panels.map(({ panel }) => panel));
  return [heading(data.title), side, colourBar(colours, low < 0 ? -most : 0, most, unit)];
};
