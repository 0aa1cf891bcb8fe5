// The screen of a classifier: a text or a drawing, and the probability of each class.
const LINKS = {
  softmax: (logits) => Array.from(logProbabilities(logits), Math.exp),
  sigmoid: (logits) => Array.from(logits, sigmoid),
};

screens.prediction = ({ model, reader, classes, link, start, begin, finish, most, note }) => {
  const makeBox = reader.box ?? textBox;
  const encode = reader.pixels ?? ((text) => [...begin, ...reader.encode(text).slice(0, most), ...finish]);
  const view = { chosen: [0, 0] };
  const [answer, evidence, attention] = ["answer", "surprise", "attention"].map(place);
  const status = el("p", { class: "readout", role: "status" });

  const update = () => {
    const began = performance.now();
    const input = encode(box.value());
    const tokens = reader.positions ? reader.positions() : Array.from(input, (id) => reader.names[id]);
    const session = changes.read(input, tokens.length);
    const probabilities = LINKS[link](session.logits(0));
    const order = probabilities.map((_, i) => i).sort((a, b) => probabilities[b] - probabilities[a] || a - b);
    show(answer, "answer", {
      title: "", label: "prediction", headline: classes[order[0]], detail: percent(probabilities[order[0]]), verdict: "",
      options: order.slice(0, 12).map((i) => [classes[i], probabilities[i], percent(probabilities[i])]), predicted: [0], truth: [], notes: [], picture: {},
    });
    if (model.evidence)
      show(evidence, "surprise", { title: "", signed: true, unit: "added to the score", tokens, rows: [{ name: classes[order[0]], bits: Array.from(model.evidence(input, order[0])) }] });
    changes.name(tokens.map((token) => visible(token)));
    changes.compare(session, 0, "The prediction");
    if (model.heads.length) show(attention, "attention", attentionData(session, tokens, view, (now) => Object.assign(view, now)));
    status.textContent = `${format(tokens.length)} positions; computed and drawn in ${format(performance.now() - began, 2)} ms.`;
  };
  const box = makeBox({ name: reader.pixels ? "drawing" : "text", start, changed: update });
  const changes = makeChanges(model, makeBox, encode, update);
  requestAnimationFrame(update);
  return [
    part("Input", reader.hint ?? "The model reads what is typed and predicts a class.", el("div", { class: "row" }, el("div", {}, box.element, status), answer)),
    model.evidence ? part("Evidence", "What each token adds to the score of the predicted class: the coefficients of its n-grams, shared by their tokens.", evidence) : null,
    model.heads.length ? part("Attention", "Where every head looks: one small map each; choose one to see it large.", attention) : null,
    changes.element,
    note ? el("p", { class: "hint" }, label(note)) : null,
  ];
};
