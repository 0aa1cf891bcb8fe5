// The screen of a language model: a text that is read while it is typed, what may follow, and samples.
const ALTERNATIVES_SHOWN = 8;
const SAMPLES = 10;

// Bits of each token of a text, its rank, and the most probable tokens at each place.
function surpriseOf(session, ids, first, names) {
  const [bits, ranks, expected] = [[], [], []];
  for (let i = first; i <= ids.length; i++) {
    if (!i) {
      bits.push(null);
      ranks.push(0);
      expected.push([]);
      continue;
    }
    const logs = logProbabilities(session.logits(i - 1));
    const best = [];
    let ahead = 0;
    for (let v = 0; v < names; v++) {
      if (i < ids.length && logs[v] > logs[ids[i]]) ahead++;
      if (best.length === ALTERNATIVES_SHOWN && !(logs[v] > logs[best[best.length - 1]])) continue;
      let at = best.length;
      while (at && logs[v] > logs[best[at - 1]]) at--;
      best.splice(at, 0, v);
      best.length = Math.min(best.length, ALTERNATIVES_SHOWN);
    }
    expected.push(best.filter((v) => logs[v] > -Infinity).map((v) => [v, Math.exp(logs[v])]));
    if (i === ids.length) break;
    bits.push(logs[ids[i]] === -Infinity ? "inf" : -logs[ids[i]] / Math.LN2);
    ranks.push(ahead + 1);
  }
  return { bits, ranks, expected };
}

screens.writing = ({ model, reader, names, start, end, begin, banned, continues, note }) => {
  const encode = (text) => {
    const ids = reader.encode(text);
    return continues && ids.length ? ids : [...begin, ...ids];
  };
  const state = { temperature: 1, topK: names.length - banned.length, topP: 1 };
  const view = { chosen: [0, 0] };
  const [reading, next, attention, samples] = ["reading", "distribution", "attention", "sequences"].map(place);
  const status = el("p", { class: "readout", role: "status" });
  const possible = names.map((_, i) => i).filter((i) => !banned.includes(i));
  let [ids, session] = [[], null];

  const update = () => {
    const began = performance.now();
    const all = encode(box.value());
    ids = all.slice(Math.max(0, all.length - model.longest));
    const first = !continues || ids.length < all.length || !all.length ? Math.min(begin.length, ids.length) : 0;
    session = changes.read(ids, ids.length);
    const tokens = ids.map((id) => names[id]);
    const { bits, ranks, expected } = surpriseOf(session, ids, first, names.length);
    show(reading, "reading", { title: "", tokens: tokens.slice(first), bits, ranks, expected, names, size: names.length, chosen: tokens.length - first });
    const logits = session.logits(ids.length - 1);
    const after = tokens.slice(first).join("");
    show(next, "distribution", {
      title: `After ${after ? `“${Array.from(after).slice(-24).join("")}”` : "the beginning"}`, tokens: possible.map((i) => names[i]),
      logits: possible.map((i) => (logits[i] === -Infinity ? "-inf" : logits[i])),
      temperature: state.temperature, top_k: state.topK, top_p: state.topP, changed: (now) => Object.assign(state, now),
    });
    changes.name(tokens.map((token) => visible(token)));
    changes.compare(session, ids.length - 1, "The distribution of the next token");
    if (model.heads.length) show(attention, "attention", attentionData(session, tokens, view, (now) => Object.assign(view, now)));
    const known = bits.filter((b) => b !== null && b !== "inf");
    const total = known.reduce((a, b) => a + b, 0);
    const cut = ids.length < all.length ? ` Only the last ${format(ids.length)} tokens are read: the model sees no more.` : "";
    const words = `${format(tokens.length - first)} tokens, ${format(total, 4)} bits${bits.includes("inf") ? ", and some were impossible" : ""}`;
    status.textContent = `${words}; computed and drawn in ${format(performance.now() - began, 2)} ms.${cut}`;
  };

  let turn = 0; // of sampling: a newer one stops the older
  const sample = async () => {
    const [mine, drawn, from] = [++turn, [], encode(box.value())];
    const options = { ...state, banned, end, most: continues ? 120 : 60, random: Math.random };
    const own = makeSession(model);
    own.edit(session.trace.edits);
    for (let i = 0; i < SAMPLES && mine === turn; i++) {
      const one = sampleText(own, from, options);
      drawn.push([box.value() + reader.decode(one.ids) + (one.finished || continues ? "" : "…"), format(one.score / Math.LN2, 3)]);
      show(samples, "sequences", { title: "", score_name: "log₂ probability of what was drawn", samples: drawn });
      await new Promise((done) => setTimeout(done));
    }
  };
  const box = textBox({ name: "text", start, changed: update });
  const changes = makeChanges(model, textBox, encode, update);
  const button = el("button", { type: "button", class: "action", click: sample }, `Draw ${SAMPLES} samples`);
  requestAnimationFrame(update);
  return [
    part("Read", "The model reads what is typed and predicts each token from those before it; the stronger its colour, the less it was expected.",
      box.element, status, reading),
    part("Next", "What may follow. A low temperature sharpens the bars, top-K keeps the K most probable and top-P the fewest that together reach P; samples follow the sliders.",
      el("div", { class: "row" }, next, el("div", {}, button, samples))),
    model.heads.length ? part("Attention", "Where every head looks: one small map each; choose one to see it large.", attention) : null,
    changes.element,
    note ? el("p", { class: "hint" }, label(note)) : null,
  ];
};
