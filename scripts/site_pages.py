"""The pages of the site that are kept elsewhere than in ``docs/``; a hook of MkDocs (``mkdocs.yml``).

README, CONTRIBUTING, SECURITY and CHANGELOG stand in the root, where people look for them, and the notebooks in
``notebooks/``: their text is turned into pages, their links into links between pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
ROOT_PAGES: Final = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages that ``mkdocs.yml`` has no place for at the end of the navigation, so that none is out of reach."""
    assert config.nav is not None
    named = json.dumps(config.nav)
    others = [path.name for path in sorted((ROOT / "docs").glob("*.md")) if f'"{path.name}"' not in named]
    if others:
        config.nav.append({"More": others})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    from mkdocs.structure.files import File

    for source, page in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=with_page_links(text, Path())))
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        document = json.loads(notebook.read_text(encoding="utf-8"))
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=notebook_page(document)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Turn the links of a page of ``docs/`` that lead out of the folder."""
    is_kept_here = (ROOT / "docs" / page.file.src_uri).exists()
    return with_page_links(markdown, Path("docs")) if is_kept_here else markdown


def with_page_links(text: str, folder: Path) -> str:
    """The text with its links as pages have them; a file that has no page is named, without a link.

    ``folder`` is where the text is kept, from the root on. All these pages lie side by side.
    """

    def turned(link: re.Match[str]) -> str:
        label, target, anchor = link[1], link[2], link[3] or ""
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        place = _from_root(folder / target)
        page = ROOT_PAGES.get(place) or place.removeprefix("docs/")
        if place in ROOT_PAGES or (place.startswith("docs/") and place.endswith(".md")):
            return f"[{page.removesuffix('.md') if label == target else label}]({page}{anchor})"
        return label if label.startswith("`") or label == target else f"{label} (`{place}`)"

    return _LINK.sub(turned, text)


def _from_root(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def notebook_page(notebook: dict[str, Any]) -> str:
    """A notebook's cells with their outputs, as Markdown."""
    pieces: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            pieces.append(source)
            continue
        pieces.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            pieces += _shown(output)
    return "\n\n".join(pieces) + "\n"


def _shown(output: dict[str, Any]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        png = "".join(data["image/png"]).replace("\n", "")
        yield f'<img alt="plot" src="data:image/png;base64,{png}">'
    elif "text/html" in data:
        yield re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]).strip())
    else:
        text = "".join(output.get("text", data.get("text/plain", "")))
        yield f"```text\n{text.rstrip()}\n```"
