// Put every component of the page into its place; live pages call `regard.mount` themselves.
function mount(place, kind, data) {
  const parts = [renderers[kind](data)].flat();
  place.replaceChildren(...parts.filter((part) => part !== null));
  place.querySelectorAll(".scroll, .heads").forEach(fadeEdges);
  const [section, title] = [place.closest("section")?.querySelector("h2"), place.querySelector("h3")];
  if (title && section?.textContent === title.textContent) title.classList.add("unseen"); // it is said already
}

for (const place of document.querySelectorAll("[data-kind]")) {
  const block = place.querySelector('script[type="application/json"]');
  try {
    mount(place, place.dataset.kind, JSON.parse(block.textContent));
  } catch (error) {
    console.error(error); // the others still stand
  }
}

window.regard = { mount, visible, cutDistribution, unpack };
