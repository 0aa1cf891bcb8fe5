"""Train small models on the examples, and write their look pages and screenshots for the docs.

python scripts/build_pictures.py [--only text,dna]

Pages go to docs/gallery/, screenshots to docs/pictures/, runs to build/pictures/. A run that is
there is used again. Needs Chromium, or the browser of `playwright install chromium`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES, PICTURES, RUNS = (
    ROOT / name for name in ("docs/gallery", "docs/pictures", "build/pictures")
)
SIZE, SCALE, COLORS = {"width": 880, "height": 620}, 1.5, 128  # of a screenshot
MAX_PICTURE, MAX_PAGE = 150_000, 400_000  # bytes


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A run on an example, the page of it, and the section that the screenshot begins with."""

    title: str
    about: str
    example: str
    run: str  # the name of the run folder
    train: str  # arguments of regard train
    look: str  # arguments of regard look
    section: str = ""  # a heading of the page; the top if empty
    minutes: float = 1

    def commands(self, page: str) -> list[str]:
        """Return the commands in order; the last one writes a page."""
        return [
            f"regard example {self.example}",
            f"regard train {self.train} --minutes {self.minutes:g} --out runs/{self.run}",
            " ".join(f"regard look runs/{self.run} {self.look} --out {page}".split()),
        ]


SHOTS = {
    "text": Shot(
        title="Text",
        about="A Transformer reads a name: how much each letter surprises it, what it expects "
        "next, and where every head attends.",
        example="names",
        run="names",
        train="names.txt --model transformer",
        look="isabella",
        section="Surprise",
    ),
    "labels": Shot(
        title="Labels",
        about="A classifier of questions: its prediction, the words that it rests on, and the "
        "questions that it gets wrong.",
        example="questions",
        run="questions",
        train="questions.tsv --target kind --model transformer",
        look="'Who built the bridge in Oslo ?'",
        section="What the prediction rests on",
    ),
    "dna": Shot(
        title="DNA",
        about="A convolutional network found the two motifs that were planted in the promoters, "
        "TTGACA and TATAAT.",
        example="promoters",
        run="promoters",
        train="promoters.fa background.fa --model cnn",
        look="GAACACATGATATTTGACAGCCTAGCCAGATACATTATATAATAGACCTTAGTTTGGAGC",
        section="What each filter looks for",
        minutes=0.5,
    ),
    "translation": Shot(
        title="Translation",
        about="A Transformer translates a date: which part of the source each letter comes from.",
        example="phrases",
        run="en-de",
        train="train.en train.de --model transformer",
        look="'January 7, 2001'",
        section="Alignment",
    ),
    "image": Shot(
        title="Images",
        about="A vision Transformer reads a digit in patches: how much each of them matters.",
        example="digits",
        run="digits",
        train="digits.npz --model transformer",
        look="digits.npz[3]",
        section="What the prediction rests on",
    ),
    "captions": Shot(
        title="Captions",
        about="A captioner describes a drawing: where it looks for every word.",
        example="pictures",
        run="pictures",
        train="pictures.npz --target captions --model transformer",
        look="pictures.npz[3]",
        section="Attention for each word",
    ),
    "points": Shot(
        title="Point clouds",
        about="A Transformer over groups of points tells a solid, whatever its rotation.",
        example="shapes",
        run="shapes",
        train="shapes.npz --model transformer",
        look="shapes.npz[3]",
        section="What the prediction rests on",
    ),
    "series": Shot(
        title="Time series",
        about="A forecast of the load of a day with its interval, hour by hour.",
        example="series",
        run="load",
        train="load.csv --target load --horizon 24 --model transformer",
        look="",
        section="Forecast",
    ),
}


def make_page(name: str, shot: Shot) -> Path:
    """Run the commands of a shot in a folder of their own; return the page."""
    from regard import cli

    folder = RUNS / name
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder):
        for line in shot.commands(f"{name}.html"):
            _, verb, *arguments = shlex.split(line)
            if verb == "train" and Path("runs", shot.run, "model.safetensors").exists():
                continue
            print(f"$ {line}", flush=True)
            with contextlib.redirect_stdout(io.StringIO()):
                if status := cli.run([verb, *arguments]):
                    raise SystemExit(f"{line}: exit status {status}")
    PAGES.mkdir(exist_ok=True)
    return Path(shutil.copyfile(folder / f"{name}.html", PAGES / f"{name}.html"))


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Open a headless browser window that may reach nothing."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium.new_context(viewport=SIZE, device_scale_factor=SCALE, offline=True)
        chromium.close()


def take_picture(window: Any, page: Path, section: str) -> Path:
    """Take a screenshot of a page, from a section on; few colors make it small."""
    from PIL import Image

    tab = window.new_page()
    tab.goto(page.as_uri())
    tab.wait_for_timeout(500)  # sizes are observed in one frame and drawn in the next
    if section:
        headings = tab.locator("h2").all_inner_texts()
        if section not in headings:
            raise SystemExit(f"{page.name} has no section {section!r}: {', '.join(headings)}")
        tab.locator("h2").nth(headings.index(section)).evaluate("h => h.scrollIntoView()")
        tab.wait_for_timeout(200)
    image = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    tab.close()
    path = PICTURES / f"{page.stem}.png"
    path.parent.mkdir(exist_ok=True)
    image.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(SHOTS))
    names = parser.parse_args().only.split(",")
    pages = {name: make_page(name, SHOTS[name]) for name in names}
    with browser() as window:
        for name, page in pages.items():
            picture = take_picture(window, page, SHOTS[name].section)
            for path, limit in ((page, MAX_PAGE), (picture, MAX_PICTURE)):
                size = path.stat().st_size
                print(f"{path.relative_to(ROOT)}: {size:,} bytes{' (!)' * (size > limit)}")


if __name__ == "__main__":
    main()
