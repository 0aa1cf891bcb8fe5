// How an item is drawn small: a text, labelled positions, an image, a point cloud, a series, a molecule.
const SMALL_IMAGE = 72; // pixels
const TEXT_SHOWN = 400; // characters
const TRACK_SHOWN = 120; // positions

function structureOf(picture, attributes = {}, under = [], over = []) {
  const [width, height] = picture.size;
  const paths = picture.paths.map(([d, filled, weight]) => svg("path", { d, class: filled ? "ink filled" : "ink", "stroke-width": weight }));
  return svg("svg", { viewBox: `-8 -8 ${width + 16} ${height + 16}`, role: "img", ...attributes }, ...under, ...paths, ...over);
}

function cloudPicture(picture, size) {
  const canvas = el("canvas", { role: "img", "aria-label": "point cloud" });
  const points = picture.points;
  onWidth(canvas, () => {
    const flat = points.every((p) => p[2] === points[0][2]);
    const [turn, tilt] = flat ? [0, 0] : [0.6, 0.5];
    const seen = points.map((p) => seenFrom(p, turn, tilt));
    const fit = fitOf(seen, size, size, 4);
    const context = canvasOf(canvas, size, size);
    context.fillStyle = css("--ink");
    for (const point of seen.sort((a, b) => a[2] - b[2])) {
      context.globalAlpha = 0.35 + 0.65 * fit.near(point);
      context.beginPath();
      context.arc(...fit.at(point), size / 48, 0, 2 * Math.PI);
      context.fill();
    }
  });
  return canvas;
}

function curvesPicture(picture) {
  const [width, height] = [200, 44];
  const each = height / picture.curves.length;
  const paths = picture.curves.map((row, c) => {
    const values = row.map(toNumber);
    const [low, high] = extent({ rows: 1, columns: values.length, get: (_, i) => values[i] });
    const x = (i) => ((i + 0.5) * width) / values.length;
    const y = (v) => (c + 0.9 - 0.8 * (high > low ? (v - low) / (high - low) : 0.5)) * each;
    return svg("path", { class: "ink", "stroke-width": 1.2, d: pathOf(values.map((v, i) => (Number.isFinite(v) ? [x(i), y(v)] : null))) });
  });
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "series" }, ...paths);
}

function trackPicture(picture) {
  const shown = picture.track.slice(0, TRACK_SHOWN);
  const columns = shown.map(([token, truth, prediction], i) =>
    withTip(el("span", { class: truth !== null && truth !== prediction ? "place wrong" : "place" }, el("b", {}, visible(token)), el("span", {}, truth === null ? "–" : label(truth)), el("span", {}, label(prediction))),
      () => [`${visible(token)} (${i + 1})`, truth === null ? "true label unknown" : `true ${label(truth)}`, `predicted ${label(prediction)}`]));
  const more = picture.track.length - shown.length;
  return el("div", { class: "track" }, el("span", { class: "place names" }, el("b", {}, "read"), el("span", {}, "true"), el("span", {}, "predicted")), ...columns, more ? el("span", {}, ` … ${format(more)} more`) : null);
}

function imagePicture(picture, size) {
  const image = pixelsOf(picture);
  const scale = size / Math.max(image.width, image.height);
  image.style.cssText = `width:${image.width * scale}px;height:${image.height * scale}px`;
  fill(image, { role: "img", class: "pixels", "aria-label": "image" }, []);
  return image;
}

// The elements of a picture; none for an item of which nothing is known.
function pictureOf(picture, size = SMALL_IMAGE) {
  const parts = [];
  if (picture.paths) parts.push(structureOf(picture, { class: "structure", "aria-label": "structure" }));
  if (picture.pixels) parts.push(imagePicture(picture, size));
  if (picture.points) parts.push(cloudPicture(picture, size));
  if (picture.curves) parts.push(curvesPicture(picture));
  if (picture.track) parts.push(trackPicture(picture));
  if (picture.text) {
    const text = picture.text.length > TEXT_SHOWN ? `${picture.text.slice(0, TEXT_SHOWN)}… (${format(picture.text.length)} characters)` : picture.text;
    parts.push(el("bdi", { class: picture.mono ? "item mono" : "item" }, label(text)));
  }
  return parts;
}
