"""A studio that serves on loopback from a thread, and a client that speaks HTTP to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regard
from regard.studio.gate import Sessions
from regard.studio.opened import Opened
from regard.studio.server import bind, make_server
from regard.studio.wire import decode

MARKUP = "<img src=x onerror=alert(1)>"
NAMES = ["ada", "bea", "cleo", "dora", "emma", "fay", "gina", "hope", "ida", "june"]


@dataclass
class Studio:
    """The client; `opened` is what the server has opened."""

    opened: Opened
    sessions: Sessions
    cookie: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.sessions.port}"

    def link(self) -> str:
        """Return an address that opens the studio once."""
        return self.sessions.link()

    def request(
        self, method: str, path: str, body: Any = None, **changed: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request as our page does, but for headers that are changed or, if None, left out;
        return status, headers and body.
        """
        headers = {"Host": self.host, "Cookie": self.cookie}
        if method == "POST":
            headers |= {"Origin": f"http://{self.host}", "X-Regard": "1"}
        changed = {name.replace("_", "-"): value for name, value in changed.items()}
        headers = {k: v for k, v in {**headers, **changed}.items() if v is not None}
        connection = http.client.HTTPConnection("127.0.0.1", self.sessions.port, timeout=60)
        with contextlib.closing(connection):
            payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.putrequest(method, path, skip_host=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if payload is not None:
                connection.putheader("Content-Length", str(len(payload)))
            connection.endheaders(payload)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def sign_in(self) -> None:
        """Exchange a token for a cookie."""
        token = self.link().partition("token=")[2]
        status, headers, _ = self.request("POST", "/session", {"token": token})
        assert status == 204
        self.cookie = headers["set-cookie"].partition(";")[0]

    def call(self, screen: str, action: str, **arguments: Any) -> Any:
        """Call an action; return its answer."""
        status, _, body = self.request("POST", f"/api/{screen}/{action}", arguments)
        assert status == 200, body
        return decode(body)

    def refused(self, screen: str, action: str, **arguments: Any) -> str:
        """Call an action that answers a mistake of the user; return the message."""
        status, _, body = self.request("POST", f"/api/{screen}/{action}", arguments)
        assert status == 400, body
        assert b"Traceback" not in body
        message: str = json.loads(body)["error"]
        return message

    def wait_for(self, number: int, seconds: float = 60.0) -> dict[str, Any]:
        """Wait for the end of a job; return it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            job: dict[str, Any] = self.call("train", "job", number=number)
            if job["state"] not in ("running", "stopping"):
                return job
            time.sleep(0.05)
        raise AssertionError(f"job {number} did not end: {job}")


@contextlib.contextmanager
def running(root: Path, data: Path) -> Iterator[Studio]:
    """Serve a folder of runs; sign in."""
    listener = bind(0)
    studio = Studio(Opened(root, data), Sessions(listener.getsockname()[1]))
    server = make_server(studio.opened, studio.sessions)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        studio.sign_in()
        yield studio
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
    assert not thread.is_alive()


def make_runs(folder: Path) -> Path:
    """Write data files and small runs into a folder, some of them with markup in their names, texts
    and labels; return the folder of runs.
    """
    runs = folder / "runs"
    names = folder / "names.txt"
    names.write_text("\n".join(a + b for a in NAMES for b in NAMES) + f"\n{MARKUP}\n")
    regard.train(names, runs / "names", model="bigram", progress=False)
    regard.train(names, runs / MARKUP, model="unigram", progress=False)
    rows = [f"{name} {other},{'x' if name < 'e' else MARKUP}" for name in NAMES for other in NAMES]
    labels = folder / f"{MARKUP}.csv"
    labels.write_text("\n".join(["text,label", *rows]) + "\n")
    regard.train(labels, runs / "labels", target="label", model="majority", progress=False)
    return runs
