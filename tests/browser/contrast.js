// The texts and marks of the page whose contrast with what is below them is too low. A colour is read by drawing it
// on a canvas, in whatever notation a computed style has it.
([TEXT, GRAPHICS]) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const read = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return { rgb: [r, g, b], alpha: a / 255 };
  };
  const over = (top, alpha, below) => top.map((x, i) => alpha * x + (1 - alpha) * below[i]);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((x) => (x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const ancestors = (element) => {
    const found = [];
    for (let e = element; e; e = e.parentElement) found.push(e);
    return found;
  };
  const background = (element) => ancestors(element).reverse().reduce((below, e) => {
    const { rgb, alpha } = read(getComputedStyle(e).backgroundColor);
    return over(rgb, alpha, below);
  }, [255, 255, 255]);
  const opacity = (element) => ancestors(element).reduce((all, e) => all * getComputedStyle(e).opacity, 1);
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const faults = new Set();
  const judge = (element, colour, least, what) => {
    const below = background(element);
    const { rgb, alpha } = read(colour);
    const found = contrast(over(rgb, alpha * opacity(element), below), below);
    if (found < least) faults.add(`${what} ${found.toFixed(2)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const [element, text] = [walker.currentNode.parentElement, walker.currentNode.data.trim()];
    if (!text || element.closest("script, noscript") || !shown(element)) continue;
    const style = getComputedStyle(element);
    const large = parseFloat(style.fontSize) >= (style.fontWeight >= 700 ? 18.66 : 24);
    const colour = element.closest("svg") ? style.fill : style.color;
    if (!element.closest(".letter")) judge(element, colour, large ? GRAPHICS : TEXT, `text “${text.slice(0, 30)}” <${element.tagName} ${element.className.baseVal ?? element.className}>`);
  }
  const marks = { ".curve": "stroke", ".edge": "stroke", "svg .interval": "stroke", "svg .point": "fill", "svg .fill": "fill" };
  for (const [selector, property] of Object.entries(marks))
    for (const element of document.querySelectorAll(selector))
      if (shown(element)) judge(element, getComputedStyle(element)[property], GRAPHICS, `${property} of ${selector}`);
  return [...faults];
}
