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
      return el(tag, { class: data.align[i] + short, "data-name": tag === "td" ? label(data.columns[i]) : null, ...attributes }, label(text));
    });
  const mark = (i) => (data.highlight.includes(i) ? "highlight" : data.warn.includes(i) ? "warn" : null);
  const rows = data.rows.map((row, i) => el("tr", { class: mark(i) }, ...cells("td", row)));
  // Several columns of sentences: on a phone each row becomes a list.
  const wordy = data.columns.filter((_, i) => data.rows.some((row) => row[i].length > SHORT_CELL)).length > 1;
  return [
    heading(data.title),
    el("div", { class: "scroll" }, el("table", { class: wordy ? "stacks" : null },
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
