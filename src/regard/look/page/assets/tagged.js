// A text whose tokens carry a tag each: its colour, and its name underneath.
renderers.tagged = (data) => {
  const names = data.names.map((name) => label(name));
  const colours = list("--series").length - 1; // they come round again: the name below a token says which it is
  const colour = (tag) => (tag < 0 ? "transparent" : seriesColour(tag % colours));
  // What all names begin with ("state ") is said once, in the legend.
  const shared = names.length > 1 ? names.reduce((a, b) => a.slice(0, [...a].findIndex((c, i) => c !== b[i]) >>> 0)) : "";
  const brief = names.map((name) => name.slice(shared.lastIndexOf(" ") + 1));
  const swatches = names.map(() => el("i", { class: "swatch tag" }));
  const tokens = data.tokens.map((token, i) => {
    const tag = data.tags[i];
    const words = () => [`${visible(token)} (${i + 1})`, tag < 0 ? "no tag" : names[tag], tag < 0 ? "" : label(data.notes[tag])];
    const shown = el("span", { class: "token" }, el("span", {}, visible(token)), el("small", {}, tag < 0 ? "–" : brief[tag]));
    return withTip(shown, () => words().filter(Boolean));
  });
  const text = el("div", { class: "text" });
  tokens.forEach((token, i) => text.append(token, data.tokens[i].endsWith("\n") ? el("span", { class: "line" }) : ""));
  onWidth(text, () => {
    tokens.forEach((token, i) => token.style.setProperty("--tag", colour(data.tags[i])));
    swatches.forEach((swatch, tag) => swatch.style.setProperty("--tag", colour(tag)));
  });
  const key = (swatch, tag) => el("span", {}, swatch, [names[tag], label(data.notes[tag])].filter(Boolean).join(": "));
  return [heading(data.title), text, el("div", { class: "legend" }, ...swatches.map(key))];
};
