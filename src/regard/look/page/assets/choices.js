// Several views of one thing; a row of buttons shows one at a time.
renderers.choices = (data) => {
  const place = el("div");
  const show = (i) => {
    const { kind, data: inner } = data.options[i];
    buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(i === j)));
    place.className = `chosen ${kind}`;
    mount(place, kind, inner);
  };
  const buttons = data.options.map(({ name }, i) => el("button", { type: "button", click: () => show(i) }, label(name)));
  const toggle = el("div", { class: "toggle", role: "group", "aria-label": "views" }, ...buttons);
  show(0);
  return [buttons.length > 1 ? toggle : null, place];
};
