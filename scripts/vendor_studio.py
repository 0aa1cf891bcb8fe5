"""Write src/regard/studio/web/vendor from the npm registry, or compare it with the registry.

    python scripts/vendor_studio.py            # fetch the files anew and write vendor.json
    python scripts/vendor_studio.py --check    # say which files differ from the published ones

A package is fetched by `npm pack` in the version written here, and its archive must have the hash
that the registry gives for it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# folder -> package, version, licence, published path -> our name
PACKAGES = {
    "src/regard/studio/web/vendor": {
        ("preact", "11.2.0", "MIT"): {
            "dist/preact.mjs": "preact/preact.mjs",
            "hooks/dist/hooks.mjs": "preact/hooks.mjs",
            "LICENSE": "preact/LICENSE",
        },
        ("htm", "3.1.1", "Apache-2.0"): {"dist/htm.mjs": "htm/htm.mjs", "LICENSE": "htm/LICENSE"},
        ("katex", "0.19.1", "MIT"): {
            "dist/katex.min.js": "katex/katex.min.js",
            "LICENSE": "katex/LICENSE",
        },
    },
    "tests/browser/vendor": {
        ("axe-core", "4.14.1", "MPL-2.0"): {
            "axe.min.js": "axe-core/axe.min.js",
            "LICENSE": "axe-core/LICENSE",
        },
    },
}


def fetch(name: str, version: str, folder: Path) -> tuple[Path, str]:
    """Return the archive of a package and its integrity, as the registry has them."""
    npm = ["npm", "--silent"]
    view = subprocess.run(
        [*npm, "view", f"{name}@{version}", "dist.integrity"], capture_output=True, text=True
    )
    integrity = view.stdout.strip()
    subprocess.run([*npm, "pack", f"{name}@{version}"], cwd=folder, check=True, capture_output=True)
    archive = next(folder.glob(f"{name}-*.tgz"))
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if integrity != f"sha512-{digest}":
        sys.exit(f"{archive.name}: sha512-{digest}, but the registry has {integrity or 'nothing'}")
    return archive, integrity


def published(archive: Path, path: str) -> bytes:
    """Return a file of an archive."""
    with tarfile.open(archive) as tar:
        member = tar.extractfile(f"package/{path}")
        assert member is not None
        return member.read()


def vendor(folder: Path, packages: dict[tuple[str, str, str], dict[str, str]], check: bool) -> int:
    """Write or compare the files of a folder; return how many differ."""
    document, differ = [], 0
    for (name, version, licence), files in packages.items():
        with tempfile.TemporaryDirectory() as scratch:
            archive, integrity = fetch(name, version, Path(scratch))
            contents = {ours: published(archive, path) for path, ours in files.items()}
        sums = {ours: hashlib.sha256(content).hexdigest() for ours, content in contents.items()}
        facts = {"name": name, "version": version, "license": licence, "integrity": integrity}
        document.append(facts | {"files": sums})
        for ours, content in contents.items():
            path = folder / ours
            if check and (not path.is_file() or path.read_bytes() != content):
                print(f"{path}: not the file of {name} {version}")
                differ += 1
            elif not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    text = json.dumps({"packages": document}, indent=2) + "\n"
    if not check:
        (folder / "vendor.json").write_text(text)
    elif (folder / "vendor.json").read_text() != text:
        print(f"{folder / 'vendor.json'}: differs from the registry")
        differ += 1
    return differ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    sys.exit(min(1, sum(vendor(ROOT / name, one, check) for name, one in PACKAGES.items())))


if __name__ == "__main__":
    main()
