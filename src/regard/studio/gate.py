"""Who may talk to the studio: the browser that was opened with the link, and nobody else.

The link carries a token after "#", which browsers never send by themselves; the page posts it once
and gets a cookie. Requests under another host name (DNS rebinding), from another page (Origin),
without our header, or for a WebSocket are refused before anything is read.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from threading import Lock
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-regard"
OPEN = "/session"  # the one address that is posted to without a cookie
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Sessions:
    """Tokens that were printed and not used yet, and the cookies of browsers that used one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = f"regard-{port}"  # cookies do not tell ports apart
        self._lock = Lock()
        self._tokens: set[str] = set()
        self._secrets: set[str] = set()

    def link(self) -> str:
        """Return an address that opens the studio once."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            self._tokens.add(token)
        return f"http://127.0.0.1:{self.port}/#token={token}"

    def exchange(self, token: str) -> str | None:
        """Return a cookie for a token, which is used up; None if it is unknown."""
        with self._lock:
            if token not in self._tokens:
                return None
            self._tokens.remove(token)
            secret = secrets.token_urlsafe(32)
            self._secrets.add(secret)
        return f"{self.cookie}={secret}; HttpOnly; SameSite=Strict; Path=/"

    def knows(self, cookies: str) -> bool:
        """Return whether a Cookie header holds one of the cookies given out."""
        try:
            cookie = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        if cookie is None:
            return False
        value = cookie.value.encode()
        return any(secrets.compare_digest(value, one.encode()) for one in self._secrets)


class Gate:
    """An ASGI application around another that answers what may not come in."""

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self.app = app
        self.sessions = sessions
        self.hosts = {f"127.0.0.1:{sessions.port}", f"localhost:{sessions.port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif refused := self.refusal(scope["method"], scope["path"], Headers(scope=scope)):
            await answer(*refused, send=send)
        else:
            await self.app(scope, receive, _guarded(send))

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return the status and the reason if a request is refused."""
        host = headers.get("host", "")
        if host not in self.hosts:
            return 421, "this server answers to its own address only"
        if "upgrade" in headers:
            return 400, "no upgrades: the studio has no WebSockets"
        if method not in ("GET", "HEAD", "POST"):
            return 405, "only GET and POST"
        if method == "POST" and headers.get("origin") != f"http://{host}":
            return 403, "the request comes from another page"
        if method == "POST" and headers.get(HEADER) != "1":
            return 403, "the header X-Regard: 1 is missing"
        private = (method == "POST" and path != OPEN) or path.startswith("/pages/")
        if private and not self.sessions.knows(headers.get("cookie", "")):
            return 401, "the link was used up, or the studio was started anew"
        return None


def _guarded(send: Send) -> Send:
    """Return a `send` that adds our headers where an answer has none of its own."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            message["headers"] = headers.raw
        await send(message)

    return guarded


async def answer(status: int, reason: str, *, send: Send) -> None:
    """Send an error."""
    body = json.dumps({"error": reason}).encode()
    headers: dict[str, Any] = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **HEADERS,
    }
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
