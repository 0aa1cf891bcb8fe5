"""Pages in headless Chromium, watched for console errors, script errors and requests.

When a test is over, the page that it leaves open must be readable (`readable.faults_of`): the first
page with each set of components is looked at.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from readable import faults_of

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Watched:
    """A browser tab: `page` is Playwright's, `errors` and `requests` are what happened in it."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: Path) -> Any:
        """Open a file and wait until everything on it is drawn."""
        self.page.goto(path.as_uri())
        self.settle()
        return self.page

    def settle(self) -> None:
        """Let two frames pass: sizes are observed in one and drawn in the next."""
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        for _ in range(2):
            self.page.evaluate(frames)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for the whole run."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def looked_at() -> set[frozenset[str]]:
    """The sets of components whose pages were found to be readable."""
    return set()


@pytest.fixture
def browser_page(chromium: Any, looked_at: set[frozenset[str]]) -> Iterator[Watched]:
    """A fresh tab that may reach nothing; `errors` collects what went wrong in it."""
    context = chromium.new_context(viewport={"width": 1100, "height": 800}, offline=True)
    watched = Watched(context.new_page())
    page = watched.page
    page.on("console", lambda m: m.type == "error" and watched.errors.append(m.text))
    page.on("pageerror", lambda error: watched.errors.append(str(error)))
    page.on("dialog", lambda dialog: (watched.errors.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: watched.requests.append(request.url))
    yield watched
    kinds = frozenset(
        page.evaluate("[...document.querySelectorAll('[data-kind]')].map(e => e.dataset.kind)")
    )
    faults = faults_of(watched) if kinds and kinds not in looked_at else []
    looked_at.add(kinds)
    context.close()
    assert faults == []
