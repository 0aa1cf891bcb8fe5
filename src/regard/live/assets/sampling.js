// Sampling: draw a token from the cut distribution, read it, and so on until the end.

// The context of a text that is longer than the model reads: its last part, as in `regard generate`.
const inContext = (ids, longest) => (ids.length > longest ? ids.slice(-Math.max(1, Math.floor(longest / 2))) : ids);

function drawFrom(probabilities, random) {
  let rest = random;
  let last = 0;
  for (let i = 0; i < probabilities.length; i++) {
    if (!probabilities[i]) continue;
    last = i;
    rest -= probabilities[i];
    if (rest < 0) break;
  }
  return last;
}

// The natural log-probability of each token at a position.
function logProbabilities(logits) {
  const total = logSumExp(logits, 0, logits.length);
  return Float64Array.from(logits, (logit) => logit - total);
}

// options: temperature, topK, topP; banned, ids never drawn; end; most, tokens at most; random() in [0, 1).
function sampleText(session, ids, options) {
  const [text, drawn] = [Array.from(ids), []];
  let score = 0;
  while (drawn.length < options.most) {
    const read = inContext(text, session.model.longest);
    session.read(read);
    const logits = Array.from(session.logits(read.length - 1));
    for (const id of options.banned) logits[id] = -Infinity;
    if (!logits.some((logit) => logit > -Infinity)) break;
    const next = drawFrom(cutDistribution(logits, options).final, options.random());
    score += logProbabilities(logits)[next];
    if (next === options.end) return { ids: drawn, score, finished: true };
    text.push(next);
    drawn.push(next);
  }
  return { ids: drawn, score, finished: false };
}
