"""The web server of the studio: files of the page, actions of its screens, uploads.

Everything that a page may ask for is a screen's action (`screens/`); what it gets is written in
`wire`, who may ask is decided in `gate`.
"""

from __future__ import annotations

import contextlib
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, get_type_hints

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regard.errors import UsageError, UserError, did_you_mean, one_line
from regard.storage import parse, validated
from regard.studio.gate import HEADERS, OPEN, Gate, Sessions
from regard.studio.opened import Opened
from regard.studio.screens import SCREENS, Screen
from regard.studio.wire import encode

# in the order of the menu; a module that is not there is skipped
MODULES = (
    "studio",
    "runs",
    "data",
    "read",
    "step",
    "compare",
    "errors",
    "embeddings",
    "play",
    "lectures",
    "train",
)
MAX_BODY = 8_000_000  # bytes of the arguments of an action
WORKERS = 4  # actions at once
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
}


def load_screens() -> dict[str, type[Screen]]:
    """Return the screens that there are, in the order of the menu."""
    package = "regard.studio.screens"
    for name in MODULES:
        if find_spec(f"{package}.{name}"):
            import_module(f"{package}.{name}")
    return {name: SCREENS[name] for name in sorted(SCREENS, key=menu_place)}


def menu_place(name: str) -> int:
    return MODULES.index(name) if name in MODULES else len(MODULES)


class Studio:
    """The screens over an opened folder, and the answers to requests."""

    def __init__(self, opened: Opened, sessions: Sessions) -> None:
        self.sessions = sessions
        self.screens = {name: screen(opened) for name, screen in load_screens().items()}
        self.limiter = anyio.CapacityLimiter(WORKERS)

    def app(self) -> Gate:
        """Return the ASGI application."""
        routes = [
            Route("/api/{screen}/{action}", self.act, methods=["POST"]),
            Route(OPEN, self.open_session, methods=["POST"]),
            Route("/{path:path}", self.send_file, methods=["GET"]),
        ]
        handlers: Mapping[Any, Any] = {
            UserError: user_error,
            HTTPException: http_error,
            Exception: our_error,
        }
        return Gate(
            Starlette(routes=routes, exception_handlers=handlers, lifespan=self.lifespan),
            self.sessions,
        )

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Close the screens when the server ends."""
        yield
        for screen in self.screens.values():
            screen.close()

    async def act(self, request: Request) -> Response:
        """Call an action in a thread, unless the page has gone on by the time there is one."""
        names = request.path_params
        function = self.action(names["screen"], names["action"])
        arguments = check_arguments(function, await read_object(request))
        async with self.limiter:
            if await request.is_disconnected():
                return Response(status_code=499)
            call = partial_call(function, arguments)
            body = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        return Response(body, media_type="application/octet-stream")

    def action(self, screen: str, name: str) -> Callable[..., Any]:
        """Return an action of a screen; raise 404 if there is none."""
        if screen not in self.screens or name not in self.screens[screen].actions():
            raise HTTPException(404, f"no action {screen}/{name}")
        return self.screens[screen].actions()[name]

    async def open_session(self, request: Request) -> Response:
        """Give a cookie for a token."""
        token = (await read_object(request)).get("token")
        cookie = self.sessions.exchange(token) if isinstance(token, str) else None
        if cookie is None:
            raise HTTPException(401, "the link was used up, or the studio was started anew")
        return Response(status_code=204, headers={"set-cookie": cookie})

    async def send_file(self, request: Request) -> Response:
        """Send a file of the page."""
        found = page_file(request.path_params["path"] or "index.html")
        if found is None:
            raise HTTPException(404, "no such page")
        content, media_type = found
        return Response(content, headers={"content-type": media_type})


def partial_call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Callable[[], bytes]:
    """Return a function that calls an action and writes its answer as bytes."""
    return lambda: encode(function(**arguments))


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request's body."""
    size = 0
    parts: list[bytes] = []
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise HTTPException(413, f"more than {MAX_BODY:,} bytes")
        parts.append(part)
    try:
        value = parse(b"".join(parts))
    except ValueError as error:
        raise UsageError(f"the request is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("the request must be a JSON object of arguments")
    return value


def check_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an action, each of the type that it declares; raise a UsageError that
    names one that is unknown, missing or of another type.
    """
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters
    for name in given:
        if name not in parameters:
            raise UsageError(f"unknown argument {name}; {did_you_mean(name, list(parameters))}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in given:
            raise UsageError(f"argument {name} is missing")
    arguments = {}
    for name, value in given.items():
        try:
            arguments[name] = validated(value, hints[name])
        except ValueError as error:
            raise UsageError(f"argument {name}: {error}") from None
    return arguments


@cache
def page_file(path: str) -> tuple[bytes, str] | None:
    """Return a file of the page and its type; None if there is none of this name."""
    if path in BUILT:
        return BUILT[path]()
    if path not in web_files():
        return None
    content = files(__package__).joinpath("web", *path.split("/")).read_bytes()
    if path.startswith("vendor/preact/"):  # browsers resolve no bare names without inline scripts
        content = content.replace(b'from"preact"', b'from"./preact.mjs"')
    return content, TYPES[path.rpartition(".")[2]]


@cache
def web_files() -> frozenset[str]:
    """Return the names of the files of the page."""

    def walk(folder: Any, prefix: str) -> Iterator[str]:
        for one in folder.iterdir():
            if one.is_dir():
                yield from walk(one, f"{prefix}{one.name}/")
            elif one.name.rpartition(".")[2] in TYPES:
                yield f"{prefix}{one.name}"

    return frozenset(walk(files(__package__) / "web", ""))


def look_script() -> tuple[bytes, str]:
    """Return the components of look pages as a module."""
    from regard.look.page.document import SCRIPTS, asset

    code = "\n".join(map(asset, SCRIPTS))
    drawn = (
        "export const draw = (component, place) => mount(place, component.kind, component.data);"
    )
    return f"{code}\n{drawn}\n".encode(), TYPES["js"]


def look_styles() -> tuple[bytes, str]:
    """Return the style sheet of look pages."""
    from regard.look.page.document import asset

    return asset("page.css").encode(), TYPES["css"]


BUILT: dict[str, Callable[[], tuple[bytes, str]]] = {
    "look.js": look_script,
    "page.css": look_styles,
}


async def user_error(request: Request, error: Exception) -> Response:
    """Answer a mistake of the user."""
    return JSONResponse({"error": one_line(str(error))}, 400)


async def http_error(request: Request, error: Exception) -> Response:
    """Answer a request that cannot be served."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


async def our_error(request: Request, error: Exception) -> Response:
    """Answer a mistake of ours; the traceback is printed in the terminal only."""
    text = f"{type(error).__name__}: the terminal that runs `regard studio` says more"
    return JSONResponse({"error": text}, 500, headers=HEADERS)


def bind(port: int) -> socket.socket:
    """Return a socket on the loopback address; port 0 is any that is free."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise UserError(f"--port {port}: {error.strerror}; without it a free one is used") from None
    return listener


def serve(opened: Opened, listener: socket.socket, sessions: Sessions) -> None:
    """Serve the studio until it is interrupted."""
    import uvicorn

    config = uvicorn.Config(
        Studio(opened, sessions).app(),
        log_level="error",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
