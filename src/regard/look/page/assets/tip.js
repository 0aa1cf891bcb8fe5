// The one read-out that follows pointer and keyboard. Lines are text; the first is set in bold.
const tip = el("div", { class: "tip", role: "status", hidden: true });

function showTip(lines, x, y) {
  if (!tip.isConnected) document.body.append(tip);
  tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
  const top = y + 16 + height > innerHeight ? y - 12 - height : y + 16;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}
const hideTip = () => (tip.hidden = true);
for (const event of ["wheel", "touchmove"]) addEventListener(event, hideTip, { passive: true });
addEventListener("keydown", (event) => event.key === "Escape" && hideTip());

// Show a tip while the pointer rests on an element or the keyboard focuses it.
function withTip(element, lines) {
  element.classList.add("has-tip");
  element.addEventListener("pointermove", (event) => showTip(lines(), event.clientX, event.clientY));
  element.addEventListener("pointerleave", hideTip);
  element.addEventListener("focus", () => {
    const box = element.getBoundingClientRect();
    showTip(lines(), box.right, box.bottom);
  });
  element.addEventListener("blur", hideTip);
  return element;
}
