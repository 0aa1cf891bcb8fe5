"""Live pages in Chromium: size of the file, milliseconds per keystroke, what rounding costs.

    python benchmarks/live_pages.py runs/names runs/names-lstm runs/digits

Every run is written as a live page and opened in headless Chromium. Held-out texts are typed
letter by letter, or strokes drawn on the canvas. A keystroke is timed from the event to the end of
its handler (computed, and drawn) and to the next frame.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from regard.evaluation.eval_data import open_corpus
from regard.live.page import live_page, store, validation
from regard.pipelines import load

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
WATCH = """() => {
  window.times = [];
  let began = 0;
  for (const name of ["input", "pointermove"]) {
    document.addEventListener(name, () => { began = performance.now(); }, true);
    document.addEventListener(name, () => {
      const [from, handled] = [began, performance.now()];
      const done = () => window.times.push([handled - from, performance.now() - from]);
      requestAnimationFrame(() => setTimeout(done));
    });
  }
}"""


def texts_of(pipeline: Any, count: int) -> list[str]:
    """Return held-out texts to type; none for models that read no text."""
    if not pipeline.source_tokenizer.reads_text:
        return []
    shard = open_corpus(pipeline.run.path).valid
    assert shard is not None
    records = (shard.record(i) for i in range(min(count, shard.records)))
    return [pipeline.source_tokenizer.decode_record(record)[:80] for record in records]


def use(page: Any, texts: list[str]) -> None:
    """Type the texts one after the other; without any, draw."""
    for text in texts:
        page.locator("textarea").first.fill("")
        page.keyboard.type(text, delay=15)
    if not texts:
        box = page.locator(".board").first.bounding_box()
        for turn in range(4):
            page.mouse.move(box["x"] + 60 * turn + 20, box["y"] + 40)
            page.mouse.down()
            page.mouse.move(box["x"] + 200, box["y"] + 250, steps=40)
            page.mouse.up()


def measure(browser: Any, run: Path, folder: Path, count: int) -> dict[str, Any]:
    """Return the row of a run."""
    pipeline = load(run)
    file = live_page(run).write(folder / "live.html")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(file.as_uri())
    page.evaluate(WATCH)
    texts = texts_of(pipeline, count)
    if texts:
        page.locator("textarea").first.focus()
    use(page, texts)
    page.wait_for_timeout(300)
    times = np.array(page.evaluate("window.times"))[5:]  # without the first, which compile
    page.close()
    stored = store(pipeline, validation(run))
    return {
        "run": run.name,
        "model": type(pipeline.model).__name__,
        "parameters": sum(p.numel() for p in pipeline.model.parameters()),
        "bytes": file.stat().st_size,
        "bits": stored.bits,
        "keystrokes": len(times),
        "handled_ms": np.percentile(times[:, 0], [50, 95]).round(1).tolist(),
        "frame_ms": np.percentile(times[:, 1], [50, 95]).round(1).tolist(),
        "costs": {cost.title: cost.difference for cost in stored.costs},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--texts", type=int, default=30, help="held-out texts that are typed")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    rows = []
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        for run in options.runs:
            rows.append(measure(browser, run, Path(folder), options.texts))
            shown = {k: v for k, v in rows[-1].items() if k != "costs"}
            cost = ", ".join(f"{name} {value:+.4f}" for name, value in rows[-1]["costs"].items())
            print("  ".join(str(value) for value in shown.values()), cost, flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
