// Logistic regression on pixels (models/linear.py): patches are put back into an image, standardised, weighted.
programs.pixels = (config, tensors) => {
  const [coefficients, bias] = [tensors("coefficients"), tensors("bias")];
  const { patch, columns } = config;
  const placeOf = (i) => {
    const [cell, within] = [Math.floor(i / (patch * patch)), i % (patch * patch)];
    const row = Math.floor(cell / columns) * patch + Math.floor(within / patch);
    return row * columns * patch + (cell % columns) * patch + (within % patch);
  };
  const [mean, deviation] = [config.mean, config.deviation].map(([value]) => 255 * value);
  return {
    causal: false, vocab: coefficients.rows, longest: Infinity, heads: [], hidden: [],
    run(trace, pixels) {
      const features = new Float32Array(pixels.length);
      pixels.forEach((value, i) => (features[placeOf(i)] = (value - mean) / deviation));
      linear(trace.rows("logits", coefficients.rows, 1), features, coefficients, bias, 0, 1);
    },
  };
};
