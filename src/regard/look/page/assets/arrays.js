// Arrays as the page carries them: a list, single precision, 16-bit steps of a range, or 8 bits of a square root.
const MISSING = 65535;

function decode(text) {
  const characters = atob(text);
  const codes = new Uint8Array(characters.length);
  for (let i = 0; i < codes.length; i++) codes[i] = characters.charCodeAt(i);
  return codes;
}

// `get(i)` is the value; `bounds(i)` the interval it came from, or null where the value is as it was.
function unpack(packed) {
  const { shape } = packed;
  if (packed.list) {
    const values = Float64Array.from(packed.list, (value) => (value === null ? NaN : toNumber(value)));
    return { shape, bits: 0, get: (i) => values[i], bounds: () => null };
  }
  if (packed.f32) {
    const numbers = new DataView(decode(packed.f32).buffer);
    return { shape, bits: 0, get: (i) => numbers.getFloat32(4 * i, true), bounds: () => null };
  }
  if (packed.u8root) {
    const codes = decode(packed.u8root);
    const value = (code) => (clamp(code, 0, 255) / 255) ** 2;
    const table = Float64Array.from({ length: 256 }, (_, code) => value(code));
    const bounds = (i) => [value(codes[i] - 0.5), value(codes[i] + 0.5)];
    return { shape, bits: 8, get: (i) => table[codes[i]], bounds };
  }
  const view = new DataView(decode(packed.u16).buffer);
  const step = (packed.high - packed.low) / (MISSING - 1);
  const get = (i) => {
    const code = view.getUint16(2 * i, true);
    return code === MISSING ? NaN : packed.low + code * step;
  };
  return { shape, bits: 16, get, bounds: (i) => (step ? [get(i) - step / 2, get(i) + step / 2] : null) };
}

// Many weights (L, H, T, S): the greatest of every tile, and the few largest of each row. A weight that is not
// among these is at most the least of them, and at most its tile. Returns one matrix per head.
function sparseHeads(packed) {
  const [layers, count, rows, columns] = packed.shape;
  const [tiles, values, places] = [unpack(packed.tiles), unpack(packed.values), decode(packed.columns)];
  const [down, across] = tiles.shape.slice(-2);
  const most = values.shape[values.shape.length - 1];
  const view = new DataView(places.buffer);
  return Array.from({ length: layers * count }, (_, head) => {
    let kept = null; // rows × columns, NaN where not kept; made when first read
    const tile = (r, c) => tiles.get((head * down + Math.floor((r * down) / rows)) * across + Math.floor((c * across) / columns));
    const fill = () => {
      kept = new Float64Array(rows * columns).fill(NaN);
      for (let r = 0; r < rows; r++)
        for (let k = 0; k < most; k++) {
          const i = (head * rows + r) * most + k;
          kept[r * columns + view.getUint16(2 * i, true)] = values.get(i);
        }
    };
    const known = (r, c) => {
      if (!kept) fill();
      return !Number.isNaN(kept[r * columns + c]);
    };
    const least = (r) => values.get((head * rows + r) * most + most - 1);
    const get = (r, c) => (known(r, c) ? kept[r * columns + c] : Math.min(tile(r, c), least(r)));
    const step = (value) => [(Math.max(0, Math.sqrt(value) - 0.5 / 255)) ** 2, Math.min(1, Math.sqrt(value) + 0.5 / 255) ** 2];
    const bounds = (r, c) => [known(r, c) ? step(get(r, c))[0] : 0, step(get(r, c))[1]];
    const overview = matrixOf(tiles, head * down * across);
    return { rows, columns, bits: 8, get, bounds, known, overview };
  });
}

// A two-dimensional window on an array, from an offset.
function matrixOf(array, offset = 0) {
  const [rows, columns] = array.shape.slice(-2);
  return {
    rows,
    columns,
    bits: array.bits,
    get: (r, c) => array.get(offset + r * columns + c),
    bounds: (r, c) => array.bounds(offset + r * columns + c),
  };
}

function extent(matrix) {
  let [low, high] = [Infinity, -Infinity];
  for (let r = 0; r < matrix.rows; r++)
    for (let c = 0; c < matrix.columns; c++) {
      const value = matrix.get(r, c);
      if (value < low) low = value;
      if (value > high) high = value;
    }
  return low <= high ? [low, high] : [0, 1];
}

// The value farthest from zero under each pixel of a smaller image: a lone line of weights must not vanish.
function shrink(matrix, size) {
  const rows = Math.min(matrix.rows, size);
  const columns = Math.min(matrix.columns, size);
  const values = new Float64Array(rows * columns);
  for (let r = 0; r < matrix.rows; r++) {
    const row = Math.floor((r * rows) / matrix.rows) * columns;
    for (let c = 0; c < matrix.columns; c++) {
      const i = row + Math.floor((c * columns) / matrix.columns);
      const value = matrix.get(r, c);
      if (Math.abs(value) > Math.abs(values[i])) values[i] = value;
    }
  }
  return { rows, columns, get: (r, c) => values[r * columns + c] };
}

// An image with one pixel per cell; cells that are not finite or have no colour stay transparent.
function matrixImage(matrix, scale) {
  const canvas = el("canvas", { width: matrix.columns, height: matrix.rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(matrix.columns, matrix.rows);
  for (let r = 0, i = 0; r < matrix.rows; r++)
    for (let c = 0; c < matrix.columns; c++, i += 4) {
      const value = matrix.get(r, c);
      if (!Number.isFinite(value)) continue;
      const colour = scale(value);
      if (!colour) continue;
      image.data[i] = colour[0];
      image.data[i + 1] = colour[1];
      image.data[i + 2] = colour[2];
      image.data[i + 3] = 255;
    }
  context.putImageData(image, 0, 0);
  return canvas;
}

// Weights without those that a mask forbids: these are hatched, as their scores are.
function unmasked(weights, scores) {
  return { ...weights, get: (r, c) => (Number.isFinite(scores.get(r, c)) ? weights.get(r, c) : NaN) };
}
