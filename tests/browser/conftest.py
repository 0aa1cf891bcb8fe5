"""Pages in headless Chromium, watched for console errors, script errors and requests.

When a test is over, the page that it leaves open must be readable (`readable.faults_of`): the first
page with each set of components is looked at.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from readable import faults_of
from studio_server import Studio, make_runs, running

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

    def watch(self) -> None:
        """Keep what goes wrong in the tab, and what it requests."""
        page = self.page
        page.on("console", lambda m: m.type == "error" and self.errors.append(m.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))

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
    watched.watch()
    yield watched
    kinds = frozenset(
        page.evaluate("[...document.querySelectorAll('[data-kind]')].map(e => e.dataset.kind)")
    )
    faults = faults_of(watched) if kinds and kinds not in looked_at else []
    looked_at.add(kinds)
    context.close()
    assert faults == []


AXE = Path(__file__).with_name("vendor") / "axe-core" / "axe.min.js"


@dataclass
class StudioTab(Watched):
    """A tab in which the studio is open."""

    studio: Any = None
    pending: int = 0  # requests under way

    def watch(self) -> None:
        """Keep what goes wrong in the tab and what it requests. A mistake of the user, which is
        answered with 400, is none of ours.
        """
        page = self.page
        page.on("console", lambda m: m.type == "error" and self.note(m.text))
        page.on("pageerror", lambda error: self.note(str(error)))
        page.on("dialog", lambda dialog: (self.note(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.count(1, request.url))
        for event in ("requestfinished", "requestfailed"):
            page.on(event, lambda request: self.count(-1))

    def note(self, text: str) -> None:
        if "status of 400" not in text:
            self.errors.append(text)

    def count(self, change: int, url: str = "") -> None:
        self.pending += change
        self.requests += [url] if url else []

    def show(self, address: str) -> Any:
        """Open a screen, as `runs?curve=training`, and wait for the answers that it asked for."""
        self.page.evaluate("address => { location.hash = `#/${address}`; }", address)
        self.rest()
        return self.page

    def rest(self) -> None:
        """Wait until no request is under way and everything is drawn."""
        quiet, end = 0, time.monotonic() + 60
        while quiet < 4 and time.monotonic() < end:  # longer than typing waits for more
            self.page.wait_for_timeout(60)
            quiet = 0 if self.pending else quiet + 1
        self.settle()

    def serious(self) -> list[str]:
        """Return what axe-core finds that is serious or critical."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run().then(result => result.violations)")
        return [
            f"{one['id']}: {node['html'][:200]}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """One studio for the tests of a module."""
    pytest.importorskip("starlette")
    folder = tmp_path_factory.mktemp("studio")
    with running(make_runs(folder), folder) as studio:
        yield studio


@pytest.fixture
def studio_tab(
    chromium: Any, studio: Studio, looked_at: set[frozenset[str]]
) -> Iterator[StudioTab]:
    """A fresh tab with the studio; at the end nothing must have gone wrong, no request may have
    left, and a screen with classes that no test before has left open must be accessible, and
    readable in both themes and on a phone.
    """
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    tab = StudioTab(context.new_page(), studio=studio)
    page = tab.page
    tab.watch()
    page.goto(studio.link())
    page.wait_for_selector("main h1")
    tab.rest()
    yield tab
    classes = page.evaluate(
        "[...document.querySelectorAll('main, main *')].map(e => `${e.className}`)"
    )
    new = frozenset(classes) not in looked_at
    looked_at.add(frozenset(classes))
    serious, faults = (tab.serious(), faults_of(tab)) if new else ([], [])
    context.close()
    assert tab.errors == []
    assert serious == []
    assert faults == []
    home = f"http://{studio.host}/"
    assert {url for url in tab.requests if not url.startswith((home, "data:", "blob:"))} == set()
