"""Sphinx's settings for the site: the Markdown pages of the repository as they are, see `make docs`.

The source folder is the repository, so that links between docs/, fixtures/ and the pages at the top are the same on the
site as in the repository. Pages are not told to be part of the site: all of docs/ is, and what is in no group of
`NAVIGATION` stands in the group of how-to pages.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

from pygments.lexer import RegexLexer
from pygments.lexers.special import TextLexer
from pygments.token import Generic

from grpcdiag.analyzer import _core

REPOSITORY = Path(__file__).resolve().parent.parent

project = "grpcdiag"
author = "the grpcdiag authors"
project_copyright = "the grpcdiag authors"
version = release = _core.__version__

extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "fixtures/recorded/**.md"]
# folders that need not be walked: built, or links to others
exclude_patterns = [".*", "analyzer", "build", "capture", "reports", "src", "target", "tests", "bench-data", "dist"]
exclude_patterns += ["fixtures/conformance", "fixtures/synthetic", "fixtures/lab"]

nitpicky = True
smartquotes = False  # it makes one dash of the two of an option
myst_heading_anchors = 4  # GitHub's: every heading can be linked to
myst_enable_extensions = ["linkify"]
myst_linkify_fuzzy_links = False  # with a scheme alone: `story.py` is no host
highlight_language = "text"

html_theme = "furo"
html_title = f"grpcdiag {version}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
if "GRPCDIAG_PUBLISHED" in os.environ:  # the site lies beside those of other versions (.ci/publish-site)
    templates_path = ["site"]
    parts = ("brand", "search", "scroll-start", "navigation")
    html_sidebars = {"**": [*(f"sidebar/{part}.html" for part in parts), "versions.html", "sidebar/scroll-end.html"]}
html_theme_options: dict[str, list[str]] = {"footer_icons": [], "top_of_page_buttons": []}

TUTORIALS = ["docs/tutorials/README", "docs/tutorials/*"]


def _in_docs(names: str) -> list[str]:
    return [f"docs/{name}" for name in names.split()]


HOW_TO = _in_docs(
    "reading-a-finding recording-well recording kubernetes watch compare two-captures hops client narrowing "
    "memory html perfetto sql fleet"
)
REFERENCE = _in_docs("commands json tables software limits versions")
PROJECT = _in_docs("architecture live adding-a-detector link-types-and-reports hostile-input security performance")
PROJECT += ["CONTRIBUTING", "CHANGELOG", "fixtures/recorded/README", "fixtures/recorded/*/README"]
NAVIGATION = {
    "Tutorials": TUTORIALS,
    "How to": HOW_TO,
    "Findings": ["docs/findings/README", "docs/findings/*"],
    "Reference": REFERENCE,
    "Project": PROJECT,
}
"""Groups of the side bar: pages in their order, `*` for the rest of a folder."""
OTHERS = "How to"
"""The group of the pages of docs/ that are in none."""


def grouped() -> dict[str, list[str]]:
    """The pages of each group, all of docs/ among them."""
    known = {page for pages in NAVIGATION.values() for page in pages}
    mentioned = {page for pattern in known for page in _pages(pattern)}
    groups = {
        name: list(dict.fromkeys(page for pattern in patterns for page in _pages(pattern)))
        for name, patterns in NAVIGATION.items()
    }
    groups[OTHERS] += [page for page in _pages("docs/*") if page not in mentioned]
    return groups


def _pages(pattern: str) -> list[str]:
    """Names of pages: paths without the ending."""
    found = REPOSITORY.glob(f"{pattern}.md")
    return sorted(path.relative_to(REPOSITORY).with_suffix("").as_posix() for path in found)


def add_navigation(app: Any, page: str, source: list[str]) -> None:
    """The first page gets the lists of pages, which would be noise to its readers elsewhere."""
    if page == root_doc:
        for caption, pages in grouped().items():
            lines = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{lines}\n```\n"


def publish(app: Any, error: Exception | None) -> None:
    """The first page under the name that servers look for, and the JSON Schemas under theirs."""
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    shutil.copy(out / f"{root_doc}.html", out / "index.html")
    shutil.copytree(REPOSITORY / "reports" / "schema", out / "schema", dirs_exist_ok=True)


class Console(RegexLexer):
    """Commands and what they print. Pygments' own takes `#45`, the number of a packet, for the prompt of root."""

    name = "console"
    tokens: ClassVar[dict[str, Any]] = {"root": [(r"^\$ .*\n", Generic.Strong), (r".*\n", Generic.Output)]}


def setup(app: Any) -> dict[str, bool]:
    """Sphinx's entry."""
    app.add_lexer("console", Console)
    app.add_lexer("mermaid", TextLexer)  # GitHub draws it
    app.connect("source-read", add_navigation)
    app.connect("build-finished", publish)
    return {"parallel_read_safe": True}
