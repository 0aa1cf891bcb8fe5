"""Names stay inside of the opened folders, and what is made is made once."""

import threading
import time
from pathlib import Path

import pytest
from studio_server import MARKUP

from regard.errors import UserError
from regard.studio.opened import Cache, Opened


@pytest.fixture
def opened(tmp_path):
    runs, data = tmp_path / "runs", tmp_path / "data"
    for name in ("a", "group/b", MARKUP):
        folder = runs / name
        (folder / "data").mkdir(parents=True)
        (folder / "recipe.toml").write_text("")
    data.mkdir()
    (data / "x.txt").write_text("x")
    (tmp_path / "secret.txt").write_text("s")
    (runs / "out").symlink_to(tmp_path, target_is_directory=True)
    (data / "out.txt").symlink_to(tmp_path / "secret.txt")
    (runs / "latest").symlink_to("a", target_is_directory=True)
    return Opened(runs, data)


def test_runs_have_names(opened):
    names = {opened.name(entry.path) for entry in opened.folders()}
    assert names == {"a", "group/b", MARKUP}
    for name in (*names, "latest"):
        assert (opened.folder(name) / "recipe.toml").is_file()


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../runs/a",
        "a/../../secret.txt",
        "/etc",
        "out",
        "a\0",
        "a\\..",
        "no",
    ],
)
def test_no_name_leads_out(opened, name):
    with pytest.raises(UserError):
        opened.folder(name)


@pytest.mark.parametrize(
    "name", ["", "../secret.txt", "out.txt", "/etc/passwd", "no.txt", "x.txt\0"]
)
def test_data_are_read_from_the_two_folders_only(opened, name):
    with pytest.raises(UserError):
        opened.data(name)


def test_data_files_are_named_as_a_command_takes_them(opened):
    assert opened.data("x.txt") == Path("x.txt")
    inside = opened.data_folder.resolve() / "x.txt"
    assert opened.data(str(inside)) == inside
    uploads = opened.root / "uploads"
    uploads.mkdir()
    (uploads / "u.csv").write_text("u")
    assert opened.data(str(opened.from_data(uploads / "u.csv"))).read_text() == "u"


def test_one_run_is_opened_alone(opened):
    alone = Opened(opened.root / "a")
    assert [alone.name(entry.path) for entry in alone.folders()] == ["a"]


def test_what_two_threads_ask_for_is_made_once():
    cache, made = Cache(2), []

    def make():
        time.sleep(0.05)
        made.append(1)
        return len(made)

    found = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get("k", make))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1, 1, 1, 1]


def test_the_oldest_value_is_dropped_and_a_failure_is_not_kept():
    cache = Cache(2)
    for key in "aba":
        cache.get(key, key.upper)
    cache.get("c", lambda: "c")  # drops b, which was used before a
    assert cache.get("a", lambda: "new") == "A"
    assert cache.get("b", lambda: "new") == "new"

    def fail():
        raise UserError("no")

    with pytest.raises(UserError):
        cache.get("d", fail)
    assert cache.get("d", lambda: 3) == 3
