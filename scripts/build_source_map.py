"""Write the list of modules in docs/source-map.md: one line each, from the modules' docstrings.

python scripts/build_source_map.py
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "source-map.md"
BEGIN, END = "<!-- modules -->\n", "<!-- end of modules -->\n"


def summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    return sentence + ("." if stop else "")


def modules(package: Path) -> str:
    """Return the modules of a package, folder by folder, as Markdown lists."""
    folders = sorted({path.parent for path in package.rglob("*.py")})
    lines = []
    for folder in folders:
        name = folder.relative_to(package.parent).as_posix()
        lines += [f"### `{name}/`", "", summary(folder / "__init__.py"), ""]
        files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        lines += [*(f"- `{path.name}`: {summary(path)}" for path in files), ""]
    return "\n".join(lines)


def build(page: str) -> str:
    """Return the page with a new list of modules."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{modules(ROOT / 'src' / 'regard')}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(build(PAGE.read_text()))
