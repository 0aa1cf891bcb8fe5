"""The studio in Chromium: how soon its first page is there, how soon *Read* redraws a text that is
typed into, how a long record opens and scrolls, and how long a first walk takes.

    python benchmarks/studio_reading.py [--only load,typing,long,walk]

Models are made here, with weights that have hardly been trained: a characters model of 13 million
parameters for each context. A keystroke is timed from its event to the first frame in which the
text has its colours again, and to that in which all panels are those of the new text.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
SIZE = ["model.n_layers=8", "model.d_model=384", "train.steps=2", "train.batch_tokens=2048"]
KEYS, PAUSE = 50, 150  # milliseconds after a redraw: a fast typist
READY = "() => !document.querySelector('.reads, .busy')"
WATCH = """() => {
  const known = Boolean(window.times);
  window.times = [];
  if (known) return;
  document.addEventListener("input", () => {
    const began = performance.now(), row = {};
    const look = () => {
      const passed = performance.now() - began;
      const list = document.querySelector("ul[data-of]");
      const count = document.querySelector(".editor .box").textContent.replace(/\\n$/, "").length;
      if (!document.querySelector(".reading-text.reads")) row.text ??= passed;
      if (list?.dataset.of === String(count) && !document.querySelector(".reads, .busy")) {
        row.all = passed;
        window.times.push(row);
      } else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  }, true);
}"""
COLOURED = "() => [...CSS.highlights].some(([name, one]) => name.startsWith('bits') && one.size)"
FRAMES = """() => new Promise(done => {
  const [box, times] = [document.querySelector(".editor"), []];
  const step = (now) => {
    times.push(now);
    box.scrollTop += 40;
    times.length < 301 ? requestAnimationFrame(step) : done(times);
  };
  requestAnimationFrame(step);
})"""


def regard(*words: str, folder: Path) -> str:
    """Run a command of regard; return what it prints."""
    command = [sys.executable, "-m", "regard", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    return done.stdout


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the runs of a folder from a process of its own; the link that opens it, once."""
    command = [sys.executable, "-m", "regard", "studio", "--no-open"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)


def texts(folder: Path) -> None:
    """Write a text to train on, and one of 50,000 characters to read."""
    draw, letters = random.Random(0), "etaoinshrdlu"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(500)]
    for name, count in (("book.txt", 60_000), ("long.txt", 10_000)):
        line = " ".join(draw.choices(words, k=count))
        (folder / name).write_text(line[: 50_000 if name == "long.txt" else None] + "\n")


def models(folder: Path, contexts: tuple[int, ...]) -> None:
    """Train a model for each context, hardly."""
    texts(folder)
    for context in contexts:
        settings = [*SIZE, f"model.max_len={context}", "data.format=text"]
        words = [word for one in settings for word in ("--set", one)]
        held_out = ["--valid", "long.txt", "--test", "long.txt", "--tokenizer", "characters"]
        out = ["--model", "transformer", "--out", f"runs/context-{context}", "--quiet"]
        regard("train", "book.txt", *held_out, *words, *out, folder=folder)


def load(browser: Any, folder: Path) -> dict[str, float]:
    """Seconds until the table of runs is there, in five fresh browsers on fresh servers."""
    times = []
    for _ in range(5):
        with serving(folder) as link:
            page = browser.new_context().new_page()
            began = time.monotonic()
            page.goto(link)
            page.wait_for_selector("table")
            times.append(time.monotonic() - began)
            page.context.close()
    return {"median_s": statistics.median(times), "slowest_s": max(times)}


def typing(page: Any, root: str, run: str) -> dict[str, float]:
    """Milliseconds from a keystroke to its colours, and until everything is redrawn."""
    page.goto(f"{root}#/read?run={run}&text=the")
    page.wait_for_selector("ul[data-of]")
    page.click(".editor .box")
    page.keyboard.press("Control+End")
    page.wait_for_function(READY)
    page.evaluate(WATCH)
    draw = random.Random(1)
    for done in range(KEYS):
        page.keyboard.type(draw.choice("etaoinshrdlu "))
        page.wait_for_function(f"() => window.times.length > {done}")
        page.wait_for_timeout(PAUSE)
    result = {}
    for part in ("text", "all"):
        times = sorted(row[part] for row in page.evaluate("() => window.times"))
        result |= {f"{part}_median_ms": statistics.median(times)}
        result |= {f"{part}_p95_ms": times[int(0.95 * len(times))]}
    return result


def paste(page: Any, root: str, run: str, text: str) -> dict[str, float]:
    """Seconds until a text that is pasted has its colours, and until all panels are there."""
    page.goto(f"{root}#/read?run={run}&text=a")
    page.wait_for_selector("ul[data-of]")
    page.click(".editor .box")
    page.keyboard.press("Control+A")
    page.wait_for_function(READY)
    began = time.monotonic()
    page.keyboard.insert_text(text)
    page.wait_for_selector(".reads", timeout=5000)
    page.wait_for_selector(".reading-text:not(.reads)")
    coloured = time.monotonic() - began
    page.wait_for_function(READY)
    return {"text_s": coloured, "all_s": time.monotonic() - began}


def long_record(page: Any, root: str, run: str) -> dict[str, float]:
    """Seconds until the first colours of a record of 50,000 tokens, and frames while it scrolls."""
    page.goto(f"{root}#/runs")
    page.wait_for_selector("h1:has-text('Runs')")
    began = time.monotonic()
    page.goto(f"{root}#/read?run={run}&record=0")
    page.wait_for_function(COLOURED)
    first = time.monotonic() - began
    page.wait_for_function(READY)
    times = page.evaluate(FRAMES)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    frames = 1000 * len(gaps) / (times[-1] - times[0])
    return {"first_colours_s": first, "frames_a_second": frames, "longest_frame_ms": max(gaps)}


def walk(page: Any, root: str, folder: Path) -> dict[str, float]:
    """Seconds from the first page: a table is dropped, the model trained, an error understood, the
    model exported.
    """
    began, steps = time.monotonic(), dict[str, float]()

    def done(step: str) -> None:
        steps[step] = round(time.monotonic() - began, 1)
        print(f"  {steps[step]:6.1f} s  {step}", flush=True)

    page.goto(f"{root}#/train")
    page.set_input_files("input[type=file]", folder / "opinions.csv")
    question = page.locator("section.question button", has_text="opinion").first
    question.wait_for()
    done("a table is dropped; the studio asks what is predicted")
    question.click()
    page.get_by_label("--model").select_option("transformer")
    page.get_by_label("--minutes").fill("0.3")
    page.locator("summary", has_text="settings").first.click()
    page.get_by_label("Find a setting").fill("model.preset=bert")
    page.keyboard.press("Enter")
    page.wait_for_selector(".command code:has-text('model.preset=bert')")
    done("the question is answered, a model that can be exported is chosen")
    page.click("button:has-text('Plan it')")
    page.wait_for_selector("text=/parameters/")
    done("the plan is read")
    page.click("button.main:has-text('Train')")
    page.wait_for_selector("button:has-text('Its errors')", timeout=180_000)
    done("the model is trained")
    page.click("button:has-text('Its errors')")
    page.wait_for_selector("#records tbody tr")
    page.locator("td button.cell:not(.right)", has_text=re.compile(r"\d")).first.click()
    page.get_by_role("button", name="read").first.click()
    page.wait_for_selector(".readout")
    page.wait_for_function(READY)
    done("a record that it gets wrong is read")
    page.goto(f"{root}#/runs")
    page.locator("tbody tr button, tbody tr a").first.click()
    command = page.locator(".card code", has_text="regard export").first.inner_text()
    regard(*command.removeprefix("regard ").replace(" OUT", " exported").split(), folder=folder)
    done("the model is exported by the command that its card shows")
    return steps


def opinions(folder: Path) -> None:
    """Write a table with a number, a text and two columns that can be predicted."""
    draw = random.Random(0)
    good, bad = ["lovely", "great", "fine", "warm"], ["dull", "awful", "cold", "poor"]
    lines = ["no,text,opinion,town"]
    for i in range(400):
        kind = draw.choice(("good", "bad"))  # of which one in eight says the opposite
        meant = (kind == "good") == (draw.random() > 1 / 8)
        words = draw.choices(good if meant else bad, k=2) + draw.choices(good + bad, k=1)
        text = f"the film was {words[0]} and {words[1]} but {words[2]}"
        lines.append(f"{i},{text},{kind},{draw.choice(('Graz', 'Linz'))}")
    (folder / "opinions.csv").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="load,typing,long,walk")
    parser.add_argument("--folder", type=Path, help="keep the models here and use them again")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    wanted, result = args.only.split(","), dict[str, Any]()
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as driver:
        folder = Path(args.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if {"typing", "long"} & set(wanted) and not (folder / "runs").exists():
            models(folder, (256, 2048))
        (folder / "runs").mkdir(exist_ok=True)
        opinions(folder)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        if "load" in wanted:
            result["load"] = load(browser, folder)
        with serving(folder) as link:
            page = browser.new_context(viewport={"width": 1300, "height": 900}).new_page()
            page.set_default_timeout(60_000)
            page.goto(link)
            page.wait_for_selector("nav")
            root = link.partition("#")[0]
            text = (folder / "long.txt").read_text()[:2000] if "typing" in wanted else ""
            for context in (256, 2048):
                run = f"context-{context}"
                if "typing" in wanted:
                    result[f"typing, context {context}"] = typing(page, root, run)
                    result[f"2,000 tokens, context {context}"] = paste(page, root, run, text)
                if "long" in wanted:
                    result[f"50,000 tokens, context {context}"] = long_record(page, root, run)
            if "walk" in wanted:
                result["walk"] = walk(page, root, folder)
    report(result, args.json)


def report(result: dict[str, Any], file: Path | None) -> None:
    for name, value in result.items():
        values = value.items() if isinstance(value, dict) else [("", value)]
        print(name + ": " + ", ".join(f"{key} {number:.3g}".strip() for key, number in values))
    if file:
        file.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
