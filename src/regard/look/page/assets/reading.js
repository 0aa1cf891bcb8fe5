// A text as a model reads it: every token coloured by its surprise, with a bar of its bits below it, and what
// the model expected at the position under the pointer or chosen by a click or the arrow keys.
const BARRED = 200; // tokens up to which each has a bar; a longer text has a strip of all of them
const ALTERNATIVES = 5; // alternatives in the read-out

renderers.reading = (data) => {
  const bits = data.bits.map(toNumber);
  const [tokens, count] = [data.tokens, data.tokens.length];
  const most = Math.max(1, bits.filter(Number.isFinite).reduce((a, b) => Math.max(a, b), 0));
  const barred = count <= BARRED;
  const places = data.expected.length; // one more than tokens where the text goes on
  const start = bits.reduce((best, b, i) => (b > (bits[best] || 0) && data.expected[i].length ? i : best), places - 1);
  let [chosen, pinned] = [data.chosen ?? start, data.chosen ?? start];
  const alternatives = (i) => data.expected[i].map(([name, p]) => [data.names[name], p]);
  const surprise = (i) => {
    if (Number.isNaN(bits[i])) return "not scored";
    if (bits[i] === Infinity) return "impossible (probability 0)";
    return `${format(bits[i], 3)} bits, probability ${percent(2 ** -bits[i])}`;
  };
  const words = (i) => {
    if (i === count) return ["what follows", "", ...alternatives(i).slice(0, ALTERNATIVES).map(([name, p]) => `${visible(name)} ${percent(p)}`)];
    const others = alternatives(i).filter(([name]) => name !== tokens[i]).slice(0, ALTERNATIVES);
    const rank = data.ranks[i] ? `number ${format(data.ranks[i])} of ${format(data.size)} by probability` : null;
    const said = others.map(([name, p]) => `${visible(name)} ${percent(p)}`).join(", ");
    return [`${visible(tokens[i])} (${i + 1}): ${surprise(i)}`, rank, others.length ? `expected instead: ${said}` : null].filter(Boolean);
  };
  const items = tokens.map((token, i) => {
    const text = el("span", { class: "letters" }, token === "\n" ? (barred ? "↵" : "↵\n") : visible(token));
    const bar = el("span", { class: "stem", "aria-hidden": "true" }, el("i"));
    return el("span", { class: "token", "data-i": i }, text, barred ? bar : null);
  });
  if (places > count) items.push(el("span", { class: "token next", "data-i": count }, el("span", { class: "letters" }, "…"), barred ? el("span", { class: "stem" }) : null));
  const text = el("div", { class: barred ? "text barred" : "text", tabindex: 0, role: "group", "aria-label": "the text; arrow keys move the position" });
  items.forEach((item, i) => text.append(item, barred && tokens[i]?.endsWith("\n") ? el("span", { class: "line" }) : ""));
  const strip = barred ? null : el("canvas", { role: "img", "aria-label": "bits of every token" });
  const [title, list] = [el("h4"), el("div", { class: "bars" })];

  const paint = (width) => {
    const scale = scaleOf("warm", [0, most]);
    items.slice(0, count).forEach((item, i) => {
      item.classList.toggle("impossible", bits[i] === Infinity);
      const shown = bits[i] === Infinity ? most : bits[i];
      const colour = Number.isNaN(bits[i]) ? null : scale(shown);
      const [letters, stem] = [item.firstChild, item.querySelector(".stem i")];
      letters.style.cssText = colour ? `background:${rgb(colour)};color:${inkOn(colour)}` : "";
      if (stem && colour) stem.style.cssText = `height:${Math.max(2, (100 * shown) / most)}%;background:${rgb(scale(0.25 * most + 0.75 * shown))}`;
    });
    if (strip) drawStrip(strip, bits, 0, most, scale, width);
  };
  const beginning = (i) => {
    const before = tokens.slice(0, i).join("");
    const shown = Array.from(visible(before, false)).slice(-24).join("");
    return before ? `Expected after “${shown.length < before.length ? "…" : ""}${shown}”` : "Expected at the beginning";
  };
  const expect = () => {
    items.forEach((item, i) => item.classList.toggle("chosen", i === chosen));
    if (chosen < 0) return;
    title.textContent = beginning(chosen);
    const listed = alternatives(chosen).map(([name, p]) => [name, p, name === tokens[chosen]]);
    if (chosen < count && !listed.some(([, , here]) => here) && !Number.isNaN(bits[chosen])) listed.push([tokens[chosen], 2 ** -bits[chosen], true]);
    const top = listed.reduce((a, [, p]) => Math.max(a, p), 0) || 1;
    list.replaceChildren(...listed.flatMap(([name, p, here]) => [
      el("span", { class: here ? "name here" : "name" }, visible(name)),
      el("div", { class: "track" }, el("div", { class: here ? "fill" : "fill other", style: `width:${(100 * p) / top}%` })),
      el("span", { class: here ? "number here" : "number" }, percent(p) + (here ? " ← the text" : "")),
    ]));
    if (!listed.length) list.replaceChildren(el("span", {}, "Nothing comes before the first token: it is not predicted."));
  };
  const choose = (i, x, y) => {
    chosen = i;
    expect();
    x === undefined ? hideTip() : showTip(words(i), x, y);
  };
  const under = (event) => {
    const item = event.target.closest(".token");
    if (item) return Number(item.dataset.i);
    if (event.target !== strip) return -1;
    const edge = strip.getBoundingClientRect();
    return clamp(Math.floor(((event.clientX - edge.left) / edge.width) * count), 0, count - 1);
  };
  const area = el("div", { class: "read" }, text, strip);
  area.addEventListener("pointermove", (event) => {
    const i = under(event);
    i >= 0 ? choose(i, event.clientX, event.clientY) : hideTip();
  });
  area.addEventListener("pointerleave", () => choose(pinned));
  area.addEventListener("click", (event) => {
    const i = under(event);
    if (i < 0) return;
    pinned = i;
    items[i].scrollIntoView({ block: "nearest" });
    choose(i, event.clientX, event.clientY);
  });
  text.addEventListener("blur", hideTip);
  text.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    pinned = clamp(chosen + ARROWS[event.key][0], 0, places - 1);
    items[pinned].scrollIntoView({ block: "nearest" });
    const edge = items[pinned].getBoundingClientRect();
    choose(pinned, edge.right, edge.bottom);
  });
  onWidth(area, paint);
  expect();
  const side = el("div", { class: "expected", role: "status" }, title, list);
  return [heading(data.title), el("div", { class: "split" }, el("div", { class: barred ? "main" : "main long" }, area, colourBar("warm", 0, most, "bits")), side)];
};
