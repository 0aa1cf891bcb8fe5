// A sequence logo: stacks of letters, each as tall as its bits. Letters are text, stretched to size.
const LETTER = 100; // a letter is drawn this wide and tall, then scaled
const LOGO_ROOM = { left: 30, top: 6, bottom: 20 };

renderers.logo = (data) => {
  const chart = el("div");
  const told = () => data.stacks.map((stack) => stack.map(([letter]) => letter).at(-1) ?? "–").join("");
  onWidth(chart, (width) => {
    const column = Math.min(30, (width - LOGO_ROOM.left) / data.stacks.length);
    const every = column > 18 ? 1 : [2, 5, 10, 20, 50, 100].find((n) => n * column > 18) ?? 200; // so that numbers do not touch
    const [tall, base] = [110, LOGO_ROOM.top + 110];
    const parts = [];
    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find((size) => 4 * size > data.most) ?? 2;
    for (let tick = 0; tick * step <= data.most + 1e-9; tick += 1)
      parts.push(svg("text", { x: LOGO_ROOM.left - 6, y: base - (tick * step * tall) / data.most + 4, "text-anchor": "end" }, format(tick * step, 2)));
    const right = LOGO_ROOM.left + column * data.stacks.length;
    parts.push(svg("path", { class: "axis", fill: "none", d: `M${LOGO_ROOM.left} ${LOGO_ROOM.top}V${base}H${right}` }));
    data.stacks.forEach((stack, j) => {
      const left = LOGO_ROOM.left + j * column;
      let y = base;
      const letters = stack.map(([letter, bits, series]) => {
        const size = (bits * tall) / data.most;
        const place = `translate(${left + 0.04 * column} ${y}) scale(${(0.92 * column) / LETTER} ${size / LETTER})`;
        y -= size;
        return svg("text", { class: "letter", transform: place, textLength: LETTER, lengthAdjust: "spacingAndGlyphs",
          style: `fill: ${seriesColour(series)}` }, visible(letter));
      });
      const words = () => [`position ${data.first + j}`, ...stack.toReversed().map(([letter, bits]) => `${visible(letter)} ${format(bits, 3)} bits`)];
      parts.push(withTip(svg("g", {}, svg("rect", { x: left, y: LOGO_ROOM.top, width: column, height: tall, fill: "transparent" }), ...letters), words));
      if ((data.first + j) % every === 0)
        parts.push(svg("text", { x: left + column / 2, y: base + 15, "text-anchor": "middle" }, String(data.first + j)));
    });
    chart.replaceChildren(svg("svg", { width, height: base + LOGO_ROOM.bottom, role: "img", "aria-label": `${label(data.title)}: ${told()}` }, ...parts));
  });
  return [heading(data.title), chart, data.note ? el("p", { class: "hint" }, label(data.note)) : null];
};
