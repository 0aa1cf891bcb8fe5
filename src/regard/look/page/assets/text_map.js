// One head over the text itself: the token under the pointer or chosen by a click paints the others by weight.
function searchTokens(tokens, wanted) {
  const starts = [];
  let text = "";
  for (const token of tokens) {
    starts.push(text.length);
    text += token.toLowerCase();
  }
  const [found, firsts] = [new Set(), []];
  for (let at = wanted ? text.indexOf(wanted) : -1; at >= 0; at = text.indexOf(wanted, at + 1)) {
    const covered = starts.map((start, i) => i).filter((i) => starts[i] < at + wanted.length && starts[i] + tokens[i].length > at);
    covered.forEach((i) => found.add(i));
    firsts.push(covered[0]);
  }
  return { found, firsts };
}

// options: tokens, sources; one, whether both are the same text; pinned, [side, index] or null; pin(place).
function textMap(matrix, options) {
  const texts = options.one ? [options.tokens] : [options.tokens, options.sources];
  const item = (token, i) => el("span", { class: "token", "data-i": i }, token === "\n" ? "↵\n" : visible(token));
  const sides = texts.map((tokens) => el("div", { class: "text" }, ...tokens.map(item)));
  const items = sides.map((side) => [...side.children]);
  const readout = el("p", { class: "readout", role: "status" });
  const key = el("div");
  let [chosen, pinned, backwards] = [options.pinned, options.pinned, false];

  const draw = () => {
    items.flat().forEach((token) => {
      token.classList.remove("chosen");
      token.style.background = token.style.color = "";
    });
    key.replaceChildren();
    if (!chosen) return void (readout.textContent = "Point at a token, or move with the arrow keys; a click keeps it.");
    const [side, i] = chosen;
    const column = side === 1 || backwards; // who looks at this token?
    const painted = items[options.one ? 0 : column ? 0 : 1];
    const weights = painted.map((_, j) => (column ? matrix.get(j, i) : matrix.get(i, j)));
    const most = weights.reduce((a, b) => Math.max(a, b), 0) || 1;
    const scale = scaleOf("sequential", [0, most], true);
    painted.forEach((token, j) => {
      if (weights[j] > 0) token.style.cssText = `background:${rgb(scale(weights[j]))};color:${inkOn(scale(weights[j]))}`;
    });
    items[side][i].classList.add("chosen");
    key.replaceChildren(colourBar("sequential", 0, most, "weight"));
    const other = options.one || column ? options.tokens : options.sources;
    const words = weights.map((weight, j) => [weight, j]).filter(([weight]) => weight > 0).sort((a, b) => b[0] - a[0]).slice(0, 6)
      .map(([weight, j]) => `${visible(other[j])} (${j + 1}) ${format(weight, 2)}`);
    const shown = visible(texts[side][i]);
    readout.textContent = `${shown} (${i + 1}) ${column ? "is looked at by" : "looks at"}: ${words.join(", ") || "nothing"}`;
  };
  const choose = (place) => {
    chosen = place;
    draw();
  };
  const pin = (place) => {
    pinned = place;
    options.pin(place);
    choose(place);
  };
  const placeOf = (event) => {
    const token = event.target.closest(".token");
    return token && [sides.indexOf(token.parentElement), Number(token.dataset.i)];
  };
  sides.forEach((side, s) => {
    side.addEventListener("pointerover", (event) => placeOf(event) && choose(placeOf(event)));
    side.addEventListener("focusin", (event) => placeOf(event) && choose(placeOf(event)));
    side.addEventListener("pointerleave", () => choose(pinned));
    side.addEventListener("click", (event) => {
      const place = placeOf(event);
      if (place) pin(pinned && pinned[0] === place[0] && pinned[1] === place[1] ? null : place);
    });
    rove(side, items[s], (token, dx, dy) => {
      const next = items[s][Number(token.dataset.i) + dx];
      return dy ? lineBelow(items[s], token, dy) : next;
    });
  });
  let turn = 0;
  const search = el("input", { type: "search", placeholder: "find in the text", "aria-label": "find in the text", autocomplete: "off", spellcheck: "false" });
  const count = el("span", { class: "fact", role: "status" });
  const look = () => searchTokens(texts[0], search.value.toLowerCase());
  search.addEventListener("input", () => {
    const { found, firsts } = look();
    items[0].forEach((token, i) => token.classList.toggle("found", found.has(i)));
    count.textContent = search.value ? `${firsts.length} found; Enter goes to the next` : "";
    turn = 0;
  });
  search.addEventListener("keydown", (event) => {
    const { firsts } = look();
    if (event.key !== "Enter" || !firsts.length) return;
    event.preventDefault();
    const i = firsts[turn++ % firsts.length];
    items[0][i].scrollIntoView({ block: "nearest" });
    pin([0, i]);
  });
  const ways = ["looks at", "is looked at by"].map((way, i) =>
    el("button", { type: "button", "aria-pressed": String(i === 0), click: (event) => {
      backwards = i === 1;
      ways.forEach((button) => button.setAttribute("aria-pressed", String(button === event.currentTarget)));
      draw();
    } }, way));
  onWidth(sides[0], draw);
  const tools = el("div", { class: "toolbar" },
    options.one ? el("span", { class: "toggle", role: "group", "aria-label": "direction" }, ...ways) : null, search, count);
  const titled = options.one ? sides : [el("h5", {}, "looks"), sides[0], el("h5", {}, "is looked at"), sides[1]];
  return el("div", { class: "text-map" }, tools, ...titled, readout, key);
}

// The token nearest above or below one, on another line of a flowing text.
function lineBelow(items, token, dy) {
  const from = token.getBoundingClientRect();
  const boxes = items.map((other) => [other, other.getBoundingClientRect()])
    .filter(([, box]) => (dy > 0 ? box.top > from.top + 4 : box.top < from.top - 4));
  const far = ([, box]) => 1e4 * Math.abs(box.top - from.top) + Math.abs(box.left - from.left);
  return boxes.sort((a, b) => far(a) - far(b))[0]?.[0];
}
