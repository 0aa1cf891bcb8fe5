// The tensors of a part, as the page stores them: see quantize.py, which computes the same values.
const STORED = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, float32: Float32Array };

function rowsOf(bytes, at, [rows, columns], Codes) {
  const scale = new Float32Array(bytes.buffer, at, rows);
  const codes = new Codes(bytes.buffer, at + 4 * rows, rows * columns);
  const values = new Float32Array(rows * columns);
  for (let r = 0, i = 0; r < rows; r++) for (let c = 0; c < columns; c++, i++) values[i] = scale[r] * codes[i];
  return values;
}

function logsOf(bytes, { at, shape, low, step }) {
  const codes = new Uint16Array(bytes.buffer, at, shape.reduce((a, b) => a * b, 1));
  return Float64Array.from(codes, (code) => (code ? Math.exp(low + (code - 1) * step) : 0));
}

// Returns a function from names to {data, rows, columns}: of a vector one row; null where there is no such tensor.
function openTensors(packed) {
  const bytes = decode(packed.bytes);
  const read = (header) => {
    if (header.codec === "int8") return rowsOf(bytes, header.at, header.shape, Int8Array);
    if (header.codec === "int16") return rowsOf(bytes, header.at, header.shape, Int16Array);
    if (header.codec === "log16") return logsOf(bytes, header);
    return new STORED[header.codec](bytes.buffer, header.at, header.shape.reduce((a, b) => a * b, 1));
  };
  const opened = new Map();
  return (name) => {
    const header = packed.arrays[name];
    if (!header) return null;
    if (!opened.has(name)) {
      const [rows, columns] = header.shape.length > 1 ? header.shape : [1, header.shape[0]];
      opened.set(name, { data: read(header), rows, columns });
    }
    return opened.get(name);
  };
}
