// Axes: scales, ticks and the frame that lines and histograms share.
const MARGIN = { left: 58, right: 18, top: 10, bottom: 44 };

function ticksOf([low, high], log, most, whole = false) {
  // On a logarithmic axis powers of ten, with 2 and 5 between them where there is room; within less than that
  // evenly spaced ticks read best.
  if (log) {
    const between = (digits, skip = 1) => {
      const ticks = [];
      for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += skip)
        ticks.push(...digits.map((digit) => Number((digit * 10 ** e).toPrecision(1))));
      return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
    };
    const [fine, decades] = [between([1, 2, 5]), between([1])];
    if (fine.length > 2 && fine.length <= most + 1) return fine;
    if (decades.length > 1) return between([1], Math.ceil(decades.length / (most + 1)));
    if (fine.length > 1) return fine;
  }
  const rough = Math.max((high - low) / most, whole ? 1 : 0);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = (whole ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10]).map((m) => m * unit).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
  return ticks;
}

// Room around the data: nothing on a logarithmic axis may reach zero.
function padded([low, high], log, fraction) {
  if (!(low <= high)) return log ? [1, 10] : [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low, high];
  const room = (high - low || Math.abs(high) || 1) * fraction;
  return [low - room, high + room];
}

function positionOf([low, high], log, from, to) {
  const f = log ? Math.log : Number;
  return (value) => from + ((f(value) - f(low)) / (f(high) - f(low))) * (to - from);
}

// 1200 → 1,200 but 100000 → 100k: ticks are read at a glance.
function shortNumber(value) {
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= Math.max(size, 1e4)) return format(value / size, 3) + letter;
  if (value > 0 && value < 1e-4) return value.toExponential(0).replace("-", "−");
  return format(value);
}

const axisName = (name, log) => label(name) + (log ? " (logarithmic)" : "");

// `aside` is room at the right for names of the curves.
function frameOf(domain, data, width, height, aside = 0) {
  const x = positionOf(domain.x, data.log_x, MARGIN.left, width - MARGIN.right - aside);
  const y = positionOf(domain.y, data.log_y, height - MARGIN.bottom, MARGIN.top);
  const [bottom, right] = [height - MARGIN.bottom, width - MARGIN.right - aside];
  const parts = [];
  for (const tick of ticksOf(domain.y, data.log_y, 5))
    parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }, shortNumber(tick)));
  const chosen = data.x_ticks?.length ? data.x_ticks : null;
  let written = -Infinity; // where the last label of a tick ended
  for (const tick of chosen ?? ticksOf(domain.x, data.log_x, Math.max(3, Math.floor((right - MARGIN.left) / 70)), domain.whole)) {
    const text = (data.x_text ?? shortNumber)(tick);
    parts.push(svg("line", { class: "axis", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 }));
    if (chosen && x(tick) - 3.6 * text.length < written) continue;
    parts.push(svg("text", { x: x(tick), y: bottom + 18, "text-anchor": "middle" }, text));
    written = x(tick) + 3.6 * text.length + 4;
  }
  parts.push(svg("line", { class: "axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }),
    svg("text", { x: (MARGIN.left + right) / 2, y: height - 6, "text-anchor": "middle" }, axisName(data.x_label, data.log_x)),
    svg("text", { transform: `translate(12 ${(MARGIN.top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
      axisName(data.y_label, data.log_y)));
  return { x, y, bottom, right, parts };
}
