"""What the server sends: files of the page, answers of actions, uploads, pages in a sandbox."""

import json
import socket
import subprocess
import sys
import time

import pytest
from studio_server import MARKUP

from regard.errors import UserError
from regard.studio import server
from regard.studio.server import (
    MAX_BODY,
    MODULES,
    SANDBOX,
    bind,
    load_screens,
    page_file,
    web_files,
)


def test_the_page_and_its_parts_are_served(studio):
    for path in ("/", *(f"/{name}" for name in web_files()), "/look.js", "/page.css"):
        status, headers, body = studio.request("GET", path)
        assert status == 200 and body
        assert headers["content-type"].partition(";")[0] in {
            "text/html", "text/javascript", "text/css", "application/json"
        }  # fmt: skip
    assert b"<script>" not in page_file("index.html")[0]
    assert b" style=" not in page_file("index.html")[0]


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py",
        "/..%2fserver.py",
        "/%2e%2e/server.py",
        "/screens/../../server.py",
        "//etc/passwd",
        "/vendor",
        "/%00",
        "/.env",
    ],
)
def test_nothing_but_the_files_of_the_page_is_served(studio, path):
    assert studio.request("GET", path)[0] == 404


def test_each_screen_of_the_menu_has_a_component(studio):
    menu = studio.call("studio", "start")["screens"]
    names = [one["name"] for one in menu]
    assert names == sorted(names, key=list(MODULES).index)
    assert {one["name"]: one["title"] for one in menu} == {
        name: screen.title for name, screen in load_screens().items() if screen.title
    }
    assert {"runs", "data", "lectures", "train"} <= set(names)
    assert {f"screens/{name}.js" for name in names} <= web_files()


def test_arguments_are_checked_by_name_and_type(studio):
    assert studio.refused("runs", "card") == "argument run is missing"
    assert "argument run" in studio.refused("runs", "card", run=3)
    assert "argument runs" in studio.refused("runs", "curves", runs=["names", None])
    assert "did you mean 'run'" in studio.refused("runs", "card", ran="names")
    assert "JSON object" in json.loads(studio.request("POST", "/api/runs/table", [])[2])["error"]
    assert "no JSON" in json.loads(studio.request("POST", "/api/runs/table", b"{")[2])["error"]
    for path in (
        "/api/runs/nothing",
        "/api/nothing/table",
        "/api/runs/close",
        "/api/runs/__init__",
    ):
        assert studio.request("POST", path, {})[0] == 404


def test_a_body_has_an_end(studio):
    status, _, body = studio.request("POST", "/api/runs/card", b" " * (MAX_BODY + 1))
    assert status == 413
    assert "bytes" in json.loads(body)["error"]


def test_a_mistake_of_ours_is_told_without_its_traceback(studio, monkeypatch, capfd):
    def fail():
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(studio.opened, "folders", fail)
    status, headers, body = studio.request("POST", "/api/runs/table", {})
    assert status == 500
    assert b"secret" not in body and b"Traceback" not in body
    assert "content-security-policy" in headers
    assert "secret" in capfd.readouterr().err


def test_a_page_that_goes_on_before_its_request_is_sent_is_no_mistake_of_ours(studio, capfd):
    head = ["POST /api/runs/table HTTP/1.1", f"Host: {studio.host}", f"Cookie: {studio.cookie}"]
    head += [f"Origin: http://{studio.host}", "X-Regard: 1", "Content-Length: 100", "", "{"]
    with socket.create_connection(("127.0.0.1", studio.sessions.port)) as connection:
        connection.sendall("\r\n".join(head).encode())
        time.sleep(0.3)  # until the action waits for the rest
    time.sleep(0.3)
    assert studio.call("runs", "table")
    assert capfd.readouterr().err == ""


def test_files_are_uploaded_under_names_of_their_own(studio, monkeypatch):
    first, second = (
        json.loads(studio.request("POST", "/upload?name=a.b.csv", b"x,y\n")[2])["path"]
        for _ in range(2)
    )
    assert (first, second) == ("runs/uploads/a.b.csv", "runs/uploads/a-2.b.csv")
    assert (studio.opened.data_folder / first).read_bytes() == b"x,y\n"
    for name in ("", ".hidden", "..", "a%2fb", "..%2fa", "a%5cb", "a%00", "%0a", "x" * 300):
        assert studio.request("POST", f"/upload?name={name}", b"x")[0] == 400
    monkeypatch.setattr(server, "MAX_UPLOAD", 10)
    assert studio.request("POST", "/upload?name=large.txt", b"x" * 11)[0] == 413
    assert sorted(path.name for path in (studio.opened.root / "uploads").iterdir()) == [
        "a-2.b.csv", "a.b.csv"
    ]  # fmt: skip


def test_pages_of_the_folder_open_in_a_sandbox(studio):
    page = studio.opened.root / "names" / "page.html"
    page.write_text("<script>1</script>")
    status, headers, _ = studio.request("GET", "/pages/names/page.html")
    assert status == 200
    assert headers["content-security-policy"] == SANDBOX
    assert "allow-same-origin" not in SANDBOX
    for path in ("names/regard.json", "names/no.html", "../names.txt", "%2fetc%2fpasswd"):
        assert studio.request("GET", f"/pages/{path}")[0] in (400, 404)


def test_markup_in_names_travels_as_data(studio):
    """The page shows every text as text; here: it arrives unchanged, and never in HTML."""
    rows = {row["name"]: row for row in studio.call("runs", "table")["runs"]}
    assert MARKUP in rows
    assert rows["labels"]["data"] == f"{MARKUP}.csv"
    for path in ("/", "/app.js"):
        assert MARKUP.encode() not in studio.request("GET", path)[2]
    _, headers, body = studio.request("POST", "/api/runs/card", {"run": f"no{MARKUP}"})
    assert headers["content-type"] == "application/json"
    assert MARKUP in json.loads(body)["error"]


def test_a_port_that_is_taken_is_named():
    with bind(0) as listener, pytest.raises(UserError, match="--port"):
        bind(listener.getsockname()[1])


def test_the_studio_starts_without_pytorch():
    """The page is there at once; screens are imported when they are used."""
    code = "import sys, regard.studio.server as server; server.menu(); server.look_script()"
    code += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
