// Types of preact.js, for `make studio`; browsers never see this file.
export { Fragment, h, render } from "preact";
export { useCallback, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
export const html: (strings: TemplateStringsArray, ...values: any[]) => any;
