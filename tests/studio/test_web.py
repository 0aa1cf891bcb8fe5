"""The files of the page: vendored ones are the published ones, ours show every text as text."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[2]
WEB = Path(regard.__file__).parent / "studio" / "web"
VENDORED = (WEB / "vendor", ROOT / "tests" / "browser" / "vendor")
OURS = [path for path in WEB.rglob("*.js") if "vendor" not in path.parts]


@pytest.mark.parametrize("folder", VENDORED, ids=lambda path: path.parent.name)
def test_vendored_files_have_the_checksums_that_are_written_down(folder):
    packages = json.loads((folder / "vendor.json").read_text())["packages"]
    listed = {name: sha for package in packages for name, sha in package["files"].items()}
    there = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("*/*")
    }
    assert listed == there
    for package in packages:
        assert any(name.endswith("LICENSE") for name in package["files"])
        assert package["integrity"].startswith("sha512-") and package["license"]


@pytest.mark.slow
def test_vendored_files_are_those_of_the_registry():
    ping = ["npm", "ping", "--fetch-timeout=5000", "--fetch-retries=0"]
    if not shutil.which("npm") or subprocess.run(ping, capture_output=True).returncode:
        pytest.skip("npm's registry cannot be reached")
    command = [sys.executable, str(ROOT / "scripts" / "vendor_studio.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_types_of_our_scripts_are_right():
    folder = ROOT / "scripts" / "studio"
    if not (folder / "node_modules").is_dir():
        pytest.skip("make studio installs TypeScript")
    done = subprocess.run(["npm", "run", "--silent", "check"], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.relative_to(WEB).as_posix())
def test_our_scripts_make_no_markup_of_text(path):
    code = path.read_text()
    assert code.startswith("// @ts-check")
    forbidden = "innerHTML|outerHTML|insertAdjacentHTML|document.write|eval\\(|new Function|https?:"
    assert re.findall(forbidden, code) == []


def test_class_names_of_the_shell_are_not_those_of_figures():
    """A figure has the class of its kind: a rule of the shell for that name would change it."""
    sheet = re.sub(r"/\*.*?\*/", "", (WEB / "style.css").read_text(), flags=re.DOTALL)
    selectors = re.findall(r"(?:^|[}\n])([^{}@]+)\{", sheet)
    bare = {
        match[1]
        for selector in selectors
        for match in re.finditer(r"(?:^|,)\s*\.([\w-]+)", selector)
    }
    from regard.look.page import document

    kinds = set(re.findall(r"renderers\.(\w+) =", document.script()))
    assert kinds and not bare & kinds
