"""The bundled data: clean, small, and made from public files by scripts that can be run again."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from regard.bundled import NAMES, PHRASES

SCRIPT = Path(__file__).parents[1] / "scripts" / "build_names.py"


def script(path: Path = SCRIPT) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_line_is_one_lower_case_name_and_none_comes_twice():
    text = NAMES.read_text(encoding="ascii")
    lines = text.split("\n")
    assert lines.pop() == ""
    assert all(line.isalpha() and line.islower() for line in lines)
    assert lines == sorted(set(lines))
    assert {"maria", "john", "smith", "garcia"} <= set(lines)


def test_the_bundle_lies_in_the_package_and_stays_below_400_kilobytes():
    import regard

    package = Path(regard.__file__).parent
    assert package in NAMES.parents
    assert sum(path.stat().st_size for path in NAMES.parent.iterdir() if path.is_file()) < 400_000


def test_names_are_taken_by_rank_lower_cased_joined_and_sorted(tmp_path, monkeypatch):
    build = script()
    monkeypatch.setattr(build, "LAST_NAMES", 2)
    row = "{:<15}0.100  0.100 {:>6}\n".format
    files = {
        "dist.female.first": ["MARY", "ROBIN"],
        "dist.male.first": ["ROBIN", "JAMES"],
        "dist.all.last": ["SMITH", "JAMES", "ZUBER"],  # the third is too rare to be kept
    }
    for name, names in files.items():
        (tmp_path / name).write_text("".join(row(n, i) for i, n in enumerate(names, start=1)))
    assert build.names_text(tmp_path) == "james\nmary\nrobin\nsmith\n"


def test_the_script_rebuilds_the_list_byte_for_byte(tmp_path, monkeypatch):
    pytest.importorskip("names", reason="pip install names==0.3.0 to rebuild the list")
    build = script()
    out = tmp_path / "names.txt"
    monkeypatch.setattr(sys, "argv", ["build_names.py", "--out", str(out)])
    build.main()
    assert out.read_bytes() == NAMES.read_bytes()
    monkeypatch.setattr(sys, "argv", ["build_names.py", "--out", str(out), "--check"])
    build.main()
    out.write_bytes(out.read_bytes()[:-1])
    with pytest.raises(SystemExit, match="differs"):
        build.main()


def test_phrases_are_pairs_that_say_the_same_numbers():
    lines = gzip.decompress(PHRASES.read_bytes()).decode().splitlines()
    pairs = [line.split("\t") for line in lines]
    assert len(pairs) == 12_000 and all(len(pair) == 2 and all(pair) for pair in pairs)
    assert len({one for one, _ in pairs}) == len(pairs)
    known = dict(pairs)
    assert known["November 10, 1999"] == "10. November 1999"
    # years are written alike, so a slip between the two sides would show
    years = [(one[-4:], other[-4:]) for one, other in pairs if one[-4:].isdigit() and ", " in one]
    assert len(years) > 500 and all(one == other for one, other in years)


def test_the_script_rebuilds_the_phrases_byte_for_byte(tmp_path, monkeypatch):
    pytest.importorskip("babel", reason="pip install babel==2.18.0 to rebuild the phrases")
    build = script(SCRIPT.with_name("build_phrases.py"))
    monkeypatch.setattr(sys, "argv", ["build_phrases.py", "--check"])
    build.main()
    out = tmp_path / "phrases.tsv.gz"
    monkeypatch.setattr(sys, "argv", ["build_phrases.py", "--pairs", "50", "--out", str(out)])
    build.main()
    whole, part = (gzip.decompress(path.read_bytes()) for path in (PHRASES, out))
    assert part.count(b"\n") == 50 and whole.startswith(part)
