"""Who may come in: every request that is not of our page is refused, and none of them acts."""

import json
import socket

import pytest

from regard.studio.gate import HEADERS


def test_every_answer_has_the_policy(studio):
    for method, path in (("GET", "/"), ("GET", "/nothing"), ("POST", "/api/runs/table")):
        _, headers, _ = studio.request(method, path, {} if method == "POST" else None)
        assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"]


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", None],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_rebound_host_is_refused(studio, host, method):
    host = host and host.format(port=studio.sessions.port)
    body = {} if method == "POST" else None
    origin = {"Origin": f"http://{host}"} if method == "POST" else {}
    status, _, answer = studio.request(method, "/api/runs/table", body, Host=host, **origin)
    assert status in (400, 421)
    assert b"runs" not in answer


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://{host}", "", None])
def test_a_post_from_another_page_is_refused(studio, origin):
    origin = origin and origin.format(host=studio.host)
    assert studio.request("POST", "/api/runs/table", {}, Origin=origin)[0] == 403
    assert studio.request("POST", "/upload?name=x.txt", b"x", Origin=origin)[0] == 403
    assert not (studio.opened.root / "uploads").exists()


def test_a_form_cannot_set_our_header(studio):
    assert studio.request("POST", "/api/runs/table", {}, X_Regard=None)[0] == 403
    assert studio.request("POST", "/session", {}, X_Regard="0")[0] == 403


def test_without_the_cookie_nothing_is_told(studio):
    wrong = f"{studio.sessions.cookie}=x"
    for cookie in (None, "", wrong, "regard-1=" + studio.cookie.partition("=")[2], 'x="'):
        for path in ("/api/runs/table", "/upload?name=x"):
            assert studio.request("POST", path, {}, Cookie=cookie)[0] == 401
        assert studio.request("GET", "/pages/names/x.html", Cookie=cookie)[0] == 401
    assert studio.request("POST", "/api/runs/table", {}, Cookie=f"a=b; {studio.cookie}")[0] == 200


def test_a_token_works_once(studio):
    token = studio.link().partition("token=")[2]
    status, headers, _ = studio.request("POST", "/session", {"token": token}, Cookie=None)
    assert status == 204
    name, _, attributes = headers["set-cookie"].partition("=")
    assert name == f"regard-{studio.sessions.port}"
    assert {"HttpOnly", "SameSite=Strict"} <= set(attributes.split("; "))
    for used in (token, "", "x", None, 3, [token]):
        assert studio.request("POST", "/session", {"token": used}, Cookie=None)[0] == 401
    assert studio.link() != studio.link()


def test_getting_never_acts(studio):
    before = studio.call("studio", "start")
    for path in ("/api/runs/table", "/api/runs/remove?run=names", "/session", "/upload?name=a"):
        assert studio.request("GET", path)[0] == 404
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        assert studio.request(method, "/api/runs/table")[0] == 405
    assert studio.call("studio", "start") == before


def test_websockets_are_refused(studio):
    lines = [
        "GET /api/runs/table HTTP/1.1",
        f"Host: {studio.host}",
        f"Cookie: {studio.cookie}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    with socket.create_connection(("127.0.0.1", studio.sessions.port), timeout=10) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    assert answer.startswith("HTTP/1.1 400")
    assert "WebSocket" in json.loads(answer.partition("\r\n\r\n")[2])["error"]
