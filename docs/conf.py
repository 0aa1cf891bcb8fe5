"""The static site: `make docs` writes build/site/. Neither building nor reading needs a network.

The table of contents is that of index.md: its links, section by section.
"""

import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx

project = "regard"
extensions = ["myst_parser"]
exclude_patterns = ["gallery/*"]
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["commands.css"]
html_title = "regard"
html_copy_source = False
html_show_copyright = False
html_show_search_summary = False  # it is fetched, which a browser refuses for files
html_show_sphinx = False
html_theme_options = {"footer_icons": []}

COMMANDS = re.compile(r'<div class="highlight-(?:sh|console) .*?</pre>', re.DOTALL)
GALLERY = Path(__file__).with_name("gallery")


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Add a hidden toctree for each section of the index that has links to pages."""
    if page != "index":
        return
    for section in source[0].split("\n## ")[1:]:
        title = section.partition("\n")[0]
        pages = re.findall(r"\]\(([\w/-]+)\.md\)", section)
        lines = ["```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```"]
        source[0] += "\n" + "\n".join(lines) + "\n"


def open_pages(app: Sphinx, document: nodes.document) -> None:
    """Let links to the pages of the gallery open them; other files are downloaded."""
    for link in list(document.findall(download_reference)):
        if link["reftarget"].endswith(".html"):
            link.replace_self(nodes.reference("", "", *link.children, refuri=link["reftarget"]))


def keep_options_whole(
    app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None
) -> None:
    """Let lines of commands break before an option, never between its hyphens."""

    def mark(block: re.Match[str]) -> str:
        return re.sub(r"(?<![\w-])--?[a-z][\w-]*", r'<span class="option">\g<0></span>', block[0])

    if "body" in context:
        context["body"] = re.sub(COMMANDS, mark, context["body"])


def copy_gallery(app: Sphinx, error: Exception | None) -> None:
    shutil.copytree(GALLERY, Path(app.outdir) / GALLERY.name, dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)
    app.connect("doctree-read", open_pages)
    app.connect("html-page-context", keep_options_whole)
    app.connect("build-finished", copy_gallery)
