// Colours come from the style sheet's variables, so they follow light, dark and print by themselves.
const LEVELS = 256;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const list = (name) => css(name).split(",").map((colour) => colour.trim());
const bytes = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// 256 colours through the anchors, interpolated in linear light.
function ramp(name) {
  const anchors = list(`--${name}`).map((hex) => bytes(hex).map((byte) => (byte / 255) ** 2.2));
  return Array.from({ length: LEVELS }, (_, level) => {
    const place = (level / (LEVELS - 1)) * (anchors.length - 1);
    const i = Math.min(Math.floor(place), anchors.length - 2);
    return [0, 1, 2].map((channel) => {
      const mixed = anchors[i][channel] + (place - i) * (anchors[i + 1][channel] - anchors[i][channel]);
      return Math.round(255 * mixed ** (1 / 2.2));
    });
  });
}
const RAMPS = { sequential: "ramp", logarithmic: "ramp", diverging: "diverging", mask: "mask", warm: "warm" };

// value → [r, g, b] on a domain; `root` spreads small values, as attention weights need. On a logarithmic
// scale zero has no colour.
function scaleOf(kind, [low, high], root = false) {
  const colours = ramp(RAMPS[kind]);
  const span = high - low || 1;
  const scale = (value) => {
    if (kind === "mask") return colours[value ? LEVELS - 1 : 0];
    if (kind === "logarithmic") return value ? colours[Math.round((Math.log1p(value) / Math.log1p(high)) * (LEVELS - 1))] : null;
    const part = clamp((value - low) / span, 0, 1);
    return colours[Math.round((root ? Math.sqrt(part) : part) * (LEVELS - 1))];
  };
  return scale;
}
const rgb = (colour) => `rgb(${colour.join(" ")})`;
// Black or white, whichever reads better on the colour: by the relative luminance of WCAG 2.2, which crosses at
// 0.179, one of them always has a contrast of 4.5.
function inkOn(colour) {
  const [r, g, b] = colour.map((byte) => (byte <= 10 ? byte / 3294.6 : ((byte / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
function gradient(kind) {
  const colours = ramp(RAMPS[kind]);
  return `linear-gradient(90deg, ${[0, 32, 64, 96, 128, 160, 192, 224, 255].map((i) => rgb(colours[i])).join(", ")})`;
}
const seriesColour = (i) => list("--series")[i % list("--series").length];
const seriesColours = () => list("--series").slice(0, -1); // all but grey
// Colours of an ordered series: along a ramp, all of which stands out from the paper.
function orderedColour(i, count) {
  return rgb(ramp("ordered")[count > 1 ? Math.round((i / (count - 1)) * (LEVELS - 1)) : 0]);
}
