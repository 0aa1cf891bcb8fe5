// Put every component of the page into its place; live pages call `regard.mount` themselves.
function mount(place, kind, data) {
  const parts = [renderers[kind](data)].flat();
  place.replaceChildren(...parts.filter((part) => part !== null));
}

for (const place of document.querySelectorAll("[data-kind]"))
  mount(place, place.dataset.kind, JSON.parse(place.querySelector('script[type="application/json"]').textContent));

window.regard = { mount, visible, cutDistribution, unpack };
