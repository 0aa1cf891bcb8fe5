// @ts-check
// The shell: menu, address and one screen at a time. What a screen shows is named by the hash, #/read?run=names&text=ada,
// so that reload and back work.
import { call, post } from "./api.js";
import { Failure } from "./components.js";
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./vendor/preact.js";

/** @typedef {Record<string, string>} State */

/** @returns {{screen: string, state: State}} */
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { screen: path, state: Object.fromEntries(new URLSearchParams(query)) };
}

/** @param {string} screen @param {Record<string, any>} state */
function hashOf(screen, state) {
  const given = Object.entries(state).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return `#/${screen}${query ? `?${query}` : ""}`;
}

/** Use the token of the link, once; the address forgets it. */
async function signIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return;
  history.replaceState(null, "", "#/");
  await post("/session", JSON.stringify({ token })).catch(() => null); // a cookie from before may still do
}

/** A screen, loaded when it is first opened. @param {{name: string, title: string, state: State}} props */
function Screen({ name, title, state }) {
  const [error, resetError] = useErrorBoundary((fault) => console.error(fault));
  const [loaded, setLoaded] = useState(/** @type {{name: string, View: any}} */ ({ name: "", View: null }));
  const [failure, setFailure] = useState(/** @type {Error | null} */ (null));
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    let current = true;
    setFailure(null);
    import(`./screens/${name}.js`).then(
      (module) => current && setLoaded({ name, View: module.default }),
      (fault) => current && setFailure(fault),
    );
    document.title = `${title} · regard studio`;
    return () => void (current = false);
  }, [name]);
  useEffect(() => resetError(), [name]);
  const go = (/** @type {string} */ screen, /** @type {Record<string, any>} */ more = {}) => {
    location.hash = hashOf(screen, screen === name ? more : { run: state.run, ...more });
    if (screen !== name) main.current?.focus();
  };
  const setState = (/** @type {Record<string, any>} */ patch) => { // typing must not fill the history
    history.replaceState(null, "", hashOf(name, { ...address().state, ...patch }));
    dispatchEvent(new HashChangeEvent("hashchange"));
  };
  const setRun = (/** @type {string} */ run) => go(name, { ...address().state, run });
  const { View } = loaded;
  return html`<main ref=${main} tabindex="-1" id="main"><h1>${title}</h1>
    <${Failure} error=${error || failure} />
    ${!error && View && loaded.name === name
      ? html`<${View} key=${name} ...${state} run=${state.run ?? ""} state=${state} setRun=${setRun} setState=${setState} go=${go} />`
      : null}</main>`;
}

function App() {
  const [{ screen, state }, setAddress] = useState(address());
  const [started, setStarted] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [out, setOut] = useState(false);
  useEffect(() => {
    const follow = async () => {
      if (location.hash.includes("token=")) await signIn().then(() => location.reload());
      setAddress(address());
    };
    const signedOut = () => setOut(true);
    addEventListener("hashchange", follow);
    addEventListener("signed-out", signedOut);
    call("studio", "start").then(setStarted, setError);
    return () => {
      removeEventListener("hashchange", follow);
      removeEventListener("signed-out", signedOut);
    };
  }, []);
  if (out)
    return html`<main><h1>This page was signed out</h1><p class="notice" role="alert">The link was used up, or the studio was started anew. In the terminal that runs <code>regard studio</code>, press Enter for a new link.</p></main>`;
  if (!started) return html`<main><${Failure} error=${error} /></main>`;
  const menu = started.screens;
  const current = menu.find((/** @type {any} */ one) => one.name === screen) ?? menu[0];
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the screen</a>
    <header class="topbar"><span class="brand">regard <span>studio</span></span>
      <nav aria-label="Screens"><ul>${menu.map((/** @type {any} */ one) => html`<li><a href=${hashOf(one.name, state.run ? { run: state.run } : {})} aria-current=${one === current ? "page" : null}>${one.title}</a></li>`)}</ul></nav>
      <span class="folder" title=${`the folder that is open: ${started.folder}`}>${started.folder}</span></header>
    <${Screen} name=${current.name} title=${current.title} state=${state} />`;
}

await signIn();
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
