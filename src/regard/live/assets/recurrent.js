// Recurrent networks: the state of each layer after every token, from the state before it (models/recurrent.py).
// The gates stand in the rows of the matrices one below the other, in torch's order.
const CELLS = {
  RNN_TANH: (x, h, size) => {
    for (let i = 0; i < size; i++) h.next[i] = Math.tanh(x[i] + h.gates[i]);
  },
  GRU: (x, h, size) => {
    for (let i = 0; i < size; i++) {
      const [r, z] = [sigmoid(x[i] + h.gates[i]), sigmoid(x[size + i] + h.gates[size + i])];
      const proposed = Math.tanh(x[2 * size + i] + r * h.gates[2 * size + i]);
      h.next[i] = (1 - z) * proposed + z * h.state[i];
    }
  },
  LSTM: (x, h, size) => {
    const gate = (n, i) => x[n * size + i] + h.gates[n * size + i];
    for (let i = 0; i < size; i++) {
      h.nextCell[i] = sigmoid(gate(1, i)) * h.cell[i] + sigmoid(gate(0, i)) * Math.tanh(gate(2, i));
      h.next[i] = sigmoid(gate(3, i)) * Math.tanh(h.nextCell[i]);
    }
  },
};

programs.recurrent = (config, tensors) => {
  const [embedding, head] = [tensors("embedding.weight"), tensors("head.weight")];
  const size = embedding.columns;
  const layers = Array.from({ length: config.n_layers }, (_, l) => Object.fromEntries(
    ["weight_ih", "weight_hh", "bias_ih", "bias_hh"].map((name) => [name, tensors(`cells.cells.${name}_l${l}`)])));
  const zeros = new Float32Array(size);
  const before = (rows, t) => (t ? rows.subarray((t - 1) * size, t * size) : zeros);
  return {
    causal: true, vocab: head.rows, longest: Infinity, heads: [],
    hidden: layers.map((_, l) => ({ name: `layer.${l}.output`, label: `layer ${l + 1}, state`, count: size })),
    run(trace, ids, from) {
      const to = ids.length;
      let x = trace.rows("embedding", size, to);
      for (let t = from; t < to; t++) x.set(embedding.data.subarray(ids[t] * size, (ids[t] + 1) * size), t * size);
      layers.forEach((layer, l) => {
        const width = layer.weight_ih.rows;
        const inputs = trace.rows(`layer.${l}.inputs`, width, to);
        const [states, cells] = ["output", "cell"].map((name) => trace.rows(`layer.${l}.${name}`, size, to));
        const gates = new Float32Array(width);
        linear(inputs, x, layer.weight_ih, layer.bias_ih, from, to);
        for (let t = from; t < to; t++) {
          linear(gates, before(states, t), layer.weight_hh, layer.bias_hh, 0, 1);
          const [next, nextCell] = [states, cells].map((rows) => rows.subarray(t * size, (t + 1) * size));
          CELLS[config.cell](inputs.subarray(t * width, (t + 1) * width),
            { gates, state: before(states, t), cell: before(cells, t), next, nextCell }, size);
          trace.done(`layer.${l}.output`, t, t + 1);
        }
        x = states;
      });
      trace.rows("recurrent.output", size, to).set(x.subarray(from * size, to * size), from * size);
      trace.done("recurrent.output", from, to);
      linear(trace.rows("logits", head.rows, to), trace.get("recurrent.output").data, head, null, from, to);
      trace.done("logits", from, to);
    },
  };
};
