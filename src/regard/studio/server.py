"""The web server of the studio: files of the page, actions of its screens, uploads.

Everything that a page may ask for is a screen's action (`screens/`); what it gets is written in
`wire`, who may ask is decided in `gate`.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regard.errors import (
    UsageError,
    UserError,
    human_size,
    one_line,
    quoted,
)
from regard.storage import parse
from regard.studio.gate import HEADERS, OPEN, Gate, Sessions
from regard.studio.opened import UPLOADS, Opened
from regard.studio.screens import SCREENS, Screen, check_arguments
from regard.studio.wire import encode

if TYPE_CHECKING:
    import uvicorn

# Modules and the titles of their screens, in the order of the menu. A module is imported when its
# screen is first used, so that the page is there at once; one that is not there is left out.
MODULES = {
    "studio": "",
    "runs": "Runs",
    "data": "Data",
    "read": "Read",
    "step": "Step",
    "compare": "Compare",
    "errors": "Errors",
    "embeddings": "Embeddings",
    "play": "Play",
    "lectures": "Lab and lectures",
    "train": "Train",
}
PACKAGE = "regard.studio.screens"
MAX_BODY = 8_000_000  # bytes of the arguments of an action
MAX_UPLOAD = 2_000_000_000  # bytes of a file; larger ones are trained from where they are
MAX_NAME = 200
SANDBOX = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
GONE = 499  # as others call it: who asked does not wait for the answer
PAGE_FIRST = 1.0  # seconds
WORKERS = 4  # actions at once
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
}


@cache
def screen_names() -> tuple[str, ...]:
    """Return the names of the screens that there are, in the order of the menu."""
    return tuple(name for name in MODULES if find_spec(f"{PACKAGE}.{name}"))


def menu() -> list[dict[str, str]]:
    """Return the names and titles of the menu."""
    return [{"name": name, "title": MODULES[name]} for name in screen_names() if MODULES[name]]


def load_screens() -> dict[str, type[Screen]]:
    """Import all screens; return them in the order of the menu."""
    for name in screen_names():
        import_module(f"{PACKAGE}.{name}")
    return {name: SCREENS[name] for name in screen_names()}


class Studio:
    """The screens over an opened folder, and the answers to requests."""

    def __init__(self, opened: Opened, sessions: Sessions) -> None:
        self.opened, self.sessions = opened, sessions
        self.screens: dict[str, Screen] = {}
        self.importing = threading.Lock()
        self.limiter = anyio.CapacityLimiter(WORKERS)

    def app(self) -> Gate:
        """Return the ASGI application."""
        routes = [
            Route("/api/{screen}/{action}", self.act, methods=["POST"]),
            Route(OPEN, self.open_session, methods=["POST"]),
            Route("/upload", self.upload, methods=["POST"]),
            Route("/pages/{name:path}", self.send_page, methods=["GET"]),
            Route("/{path:path}", self.send_file, methods=["GET"]),
        ]
        handlers: Mapping[Any, Any] = {
            UserError: user_error,
            HTTPException: http_error,
            ClientDisconnect: gone,
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
        if running := sum(job.ended is None for job in self.opened.jobs.list()):
            print(f"stopping {running} running jobs; training is saved", file=sys.stderr)
        await anyio.to_thread.run_sync(self.opened.jobs.close)

    async def act(self, request: Request) -> Response:
        """Call an action in a thread, unless the page has gone on by the time there is one."""
        names = request.path_params
        find = partial(self.action, names["screen"], names["action"])
        function = await anyio.to_thread.run_sync(find)
        arguments = check_arguments(function, await read_object(request))
        async with self.limiter:
            if await request.is_disconnected():
                return Response(status_code=GONE)
            call = partial_call(function, arguments)
            body = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        return Response(body, media_type="application/octet-stream")

    def action(self, screen: str, name: str) -> Callable[..., Any]:
        """Return an action of a screen; raise 404 if there is none."""
        if screen in screen_names():
            actions = self.screen(screen).actions()
            if name in actions:
                return actions[name]
        raise HTTPException(404, f"no action {screen}/{name}")

    def screen(self, name: str) -> Screen:
        """Return a screen, which is imported when it is first used."""
        if name not in self.screens:
            with self.importing:
                import_module(f"{PACKAGE}.{name}")
                self.screens.setdefault(name, SCREENS[name](self.opened))
        return self.screens[name]

    async def open_session(self, request: Request) -> Response:
        """Give a cookie for a token."""
        token = (await read_object(request)).get("token")
        cookie = self.sessions.exchange(token) if isinstance(token, str) else None
        if cookie is None:
            raise HTTPException(401, "the link was used up, or the studio was started anew")
        threading.Thread(target=warm_up, daemon=True).start()
        return Response(status_code=204, headers={"set-cookie": cookie})

    async def upload(self, request: Request) -> Response:
        """Write the body of a request into the folder of uploads; answer the path of the file."""
        path = free_path(self.opened.path(UPLOADS), request.query_params.get("name", ""))
        part = path.with_name(f".{path.name}.part")
        size = 0
        try:
            with await anyio.to_thread.run_sync(lambda: part.open("wb")) as file:
                async for piece in request.stream():
                    size += len(piece)
                    if size > MAX_UPLOAD:
                        raise HTTPException(413, f"more than {human_size(MAX_UPLOAD)}")
                    await anyio.to_thread.run_sync(file.write, piece)
            part.replace(path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None
        finally:
            part.unlink(missing_ok=True)
        return JSONResponse({"path": str(self.opened.from_data(path)), "bytes": size})

    async def send_page(self, request: Request) -> Response:
        """Send a page that regard wrote among the runs. It has scripts of its own, so it is opened
        in a sandbox: without cookies, without requests, unable to reach the studio.
        """
        path = self.opened.path(request.path_params["name"])
        if path.suffix != ".html" or not path.is_file():
            raise HTTPException(404, "no such page")
        headers = {"content-type": TYPES["html"], "content-security-policy": SANDBOX}
        return Response(await anyio.to_thread.run_sync(path.read_bytes), headers=headers)

    async def send_file(self, request: Request) -> Response:
        """Send a file of the page."""
        file = page_file(request.path_params["path"] or "index.html")
        if file is None:
            raise HTTPException(404, "no such page")
        content, media_type = file
        return Response(content, headers={"content-type": media_type})


def warm_up() -> None:
    """Import what most actions need, after the first page has been drawn."""
    time.sleep(PAGE_FIRST)
    load_screens()
    import_module("regard.api")


def free_path(folder: Path, name: str) -> Path:
    """Return where to write an uploaded file: under its own name, with a number if it is taken."""
    if not name or name.startswith(".") or set(name) & set("/\\\0") or not name.isprintable():
        raise UsageError(f"{quoted(name)} is no name of a file")
    stem, dot, ending = name.partition(".")
    if len(name.encode()) > MAX_NAME:
        raise UsageError(f"the name of a file may have {MAX_NAME} bytes, got {quoted(name)}")
    folder.mkdir(parents=True, exist_ok=True)
    path, number = folder / name, 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}{dot}{ending}"
    return path


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


# functions of the look pages that screens use
SHARED = (
    "canvasPlane",
    "fadeEdges",
    "format",
    "inkOn",
    "ramp",
    "rgb",
    "scaleOf",
    "seriesColours",
    "visible",
)


def look_script() -> tuple[bytes, str]:
    """Return the components of look pages as a module."""
    from regard.look.page.document import SCRIPTS, asset, rare_assets

    code = "\n".join(map(asset, (*SCRIPTS, *rare_assets(".js"))))
    exports = (
        "export const draw = (component, place) => mount(place, component.kind, component.data);\n"
        f"export {{ {', '.join(SHARED)} }};"
    )
    return f"{code}\n{exports}\n".encode(), TYPES["js"]


def look_styles() -> tuple[bytes, str]:
    """Return the style sheet of look pages."""
    from regard.look.page.document import asset, rare_assets

    code = "\n".join(map(asset, ("page.css", *rare_assets(".css"))))
    return code.encode(), TYPES["css"]


BUILT: dict[str, Callable[[], tuple[bytes, str]]] = {
    "look.js": look_script,
    "page.css": look_styles,
}


async def user_error(request: Request, error: Exception) -> Response:
    """Answer a mistake of the user."""
    details = list(map(one_line, getattr(error, "details", ())))
    return JSONResponse({"error": one_line(str(error)), "details": details}, 400)


async def http_error(request: Request, error: Exception) -> Response:
    """Answer a request that cannot be served."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


async def gone(request: Request, error: Exception) -> Response:
    """Answer nobody: the page went on before it had sent its request."""
    return Response(status_code=GONE)


async def our_error(request: Request, error: Exception) -> Response:
    """Answer a mistake of ours; the traceback is printed in the terminal only."""
    traceback.print_exception(error)
    text = f"{type(error).__name__}: the terminal that runs `regard studio` says more"
    return JSONResponse({"error": text}, 500, headers=HEADERS)


def bind(port: int) -> socket.socket:
    """Return a socket on the loopback address; port 0 is any that is free."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # a browser that is quicker than our imports waits
    except OSError as error:
        listener.close()
        raise UserError(f"--port {port}: {error.strerror}; without it a free one is used") from None
    return listener


def make_server(opened: Opened, sessions: Sessions) -> uvicorn.Server:
    """Return the server of a studio, not yet started."""
    import uvicorn

    config = uvicorn.Config(
        Studio(opened, sessions).app(),
        log_level="critical",  # of requests that are cut off by Ctrl-C there is nothing to say
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def serve(opened: Opened, listener: socket.socket, sessions: Sessions) -> None:
    """Serve the studio until it is interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        make_server(opened, sessions).run(sockets=[listener])
