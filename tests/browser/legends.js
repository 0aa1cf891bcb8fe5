// The colours of each legend of classes, as #rrggbb.
() => [...document.querySelectorAll(".keys")].map((keys) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  return [...keys.querySelectorAll("i:not(.block)")].map((swatch) => {
    canvas.fillStyle = getComputedStyle(swatch).backgroundColor;
    canvas.fillRect(0, 0, 1, 1);
    return "#" + [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((x) => x.toString(16).padStart(2, "0")).join("");
  });
})
