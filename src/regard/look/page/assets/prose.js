// Words and tables.
const SHORT_CELL = 32; // characters of a cell that is never broken: figures with their intervals

renderers.text = (data) => data.paragraphs.map((paragraph) => el("p", {}, label(paragraph)));

renderers.links = (data) => el("p", {}, ...data.links.flatMap(([name, href], i) =>
  [i ? " · " : null, el("a", { href }, label(name))]));

renderers.facts = (data) => [
  heading(data.title),
  el("dl", { class: "pairs" }, ...data.facts.map(([name, value]) =>
    el("div", {}, el("dt", {}, label(name)), el("dd", {}, label(value))))),
];

renderers.table = (data) => {
  const cells = (tag, row, attributes = {}) =>
    row.map((text, i) => {
      const short = text.length <= SHORT_CELL ? " short" : "";
      return el(tag, { class: data.align[i] + short, ...attributes }, label(text));
    });
  const rows = data.rows.map((row, i) =>
    el("tr", { class: data.highlight.includes(i) ? "highlight" : null }, ...cells("td", row)));
  return [
    heading(data.title),
    el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ...cells("th", data.columns, { scope: "col" }))),
      el("tbody", {}, ...rows))),
  ];
};

renderers.sequences = (data) => [
  heading(data.title),
  el("ol", { class: "samples" }, ...data.samples.map(([text, score]) =>
    el("li", {}, el("bdi", {}, label(text)),
      score === null ? null : el("span", { class: "score", title: data.score_name }, label(score))))),
];
