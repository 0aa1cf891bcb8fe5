// A session reads one text again and again, and computes only what changed since the last time.
//
// Activations have the names that Python's `Tap` knows them by (layers/tap.py). Of each there is a buffer with a
// row for every position; attention weights, whose rows differ in length, are lists of rows. An edit changes rows
// once they are computed: {name, position (null: all), first, count (columns), values (null: zeros)}.
const programs = {}; // by name: (config, tensors) → model

function makeTrace() {
  const buffers = new Map();
  const lists = new Map();
  const trace = {
    edits: [],
    rows(name, width, count) {
      const old = buffers.get(name);
      if (old && old.data.length >= count * width) return old.data;
      const data = new Float32Array(Math.max(16, 2 * count) * width);
      if (old) data.set(old.data);
      buffers.set(name, { data, width });
      return data;
    },
    list(name) {
      if (!lists.has(name)) lists.set(name, []);
      return lists.get(name);
    },
    // An activation is computed from one position to another: edits may change it now.
    done(name, from, to) {
      const { data, width } = buffers.get(name);
      for (const edit of trace.edits) {
        if (edit.name !== name) continue;
        const [first, last] = edit.position === null ? [from, to] : [Math.max(from, edit.position), Math.min(to, edit.position + 1)];
        for (let t = first; t < last; t++)
          for (let i = 0; i < edit.count; i++) data[t * width + edit.first + i] = edit.values ? edit.values[i] : 0;
      }
    },
    get: (name) => buffers.get(name),
    names: () => [...buffers.keys(), ...lists.keys()],
  };
  return trace;
}

function makeSession(model) {
  const trace = makeTrace();
  let previous = [];
  return {
    model,
    trace,
    edit(edits) {
      trace.edits = edits;
      previous = [];
    },
    length: (ids) => model.length?.(ids) ?? ids.length, // positions of an input
    // Returns how many positions were computed; `trace` has the activations.
    read(ids) {
      let from = 0;
      while (model.causal && from < ids.length && from < previous.length && ids[from] === previous[from]) from++;
      if (from < ids.length || !model.causal) model.run(trace, ids, from);
      previous = Array.from(ids);
      return ids.length - from;
    },
    // The (V,) logits at a position.
    logits: (t) => trace.get("logits").data.subarray(t * model.vocab, (t + 1) * model.vocab),
  };
}
