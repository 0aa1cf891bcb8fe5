// What screens use of Preact, its hooks and htm.
import { Fragment, h, render } from "./preact/preact.mjs";
import htm from "./htm/htm.mjs";
export { useCallback, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./preact/hooks.mjs";

const html = htm.bind(h);
export { Fragment, h, html, render };
