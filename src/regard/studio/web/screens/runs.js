// @ts-check
import { useLatest } from "../api.js";
import { Failure, Table } from "../components.js";
import { html } from "../vendor/preact.js";

const COLUMNS = [
  { name: "name", title: "run" },
  { name: "task", title: "task" },
  { name: "data", title: "data" },
  { name: "model", title: "model" },
  { name: "result", title: "metric" },
  { name: "date", title: "date" },
];

/** @param {{run: string, setRun: (run: string) => void, go: Function}} props */
export default function Runs({ run, setRun, go }) {
  const { value, error } = useLatest("runs", "table", {});
  return html`<${Failure} error=${error} />
    ${value && html`<${Table} columns=${COLUMNS} rows=${value.runs} label="Runs" />`}`;
}
