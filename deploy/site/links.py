"""A hook of mkdocs (mkdocs.yml): the pages at the root of the repository, links that leave docs/.

The pages are written for GitHub, where a link from docs/ to the sources works. On the site README,
CONTRIBUTING and CHANGELOG are pages, a source file is a text beside the pages, and a link to a
folder is left out.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""By their name in the repository."""
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages at the root, and every file of the repository that a page links to."""
    for name, page in PAGES.items():
        text = re.sub(r'((?:src|srcset)=")docs/', r"\1", (ROOT / name).read_text())
        files.append(File.generated(config, page, content=text))
    sources = [(ROOT / name, name) for name in PAGES]
    sources += [
        (Path(file.abs_src_path), f"docs/{file.src_uri}")
        for file in files.documentation_pages()
        if file.abs_src_path
    ]
    for path, place in sources:
        for link in LINK.finditer(path.read_text()):
            target = _in_repository(place, link["target"])
            if target is not None and target.is_file() and _is_source(target):
                uri = _site_uri(target)
                if files.get_file_from_path(uri) is None:
                    files.append(File.generated(config, uri, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Exchange the links that leave docs/, or that leave the root for docs/."""
    name = next((name for name, uri in PAGES.items() if uri == page.file.src_uri), None)
    place = name or f"docs/{page.file.src_uri}"

    def exchange(link: re.Match[str]) -> str:
        target = _in_repository(place, link["target"])
        if target is None:
            return link[0]
        if target.is_dir():
            return link["text"]
        here = PurePosixPath(page.file.src_uri).parent
        up = "../" * len(here.parts)
        return f"[{link['text']}]({up}{_site_uri(target)}{link['anchor'] or ''})"

    return LINK.sub(exchange, markdown)


def _in_repository(place: str, target: str) -> Path | None:
    """What a relative link of the file at ``place`` leads to; None if there is nothing."""
    if ":" in target:
        return None
    path = (ROOT / place).parent / target
    return path.resolve() if path.exists() else None


def _is_source(path: Path) -> bool:
    return not path.is_relative_to(ROOT / "docs") and path.name not in PAGES


def _site_uri(path: Path) -> str:
    inside = path.relative_to(ROOT).as_posix()
    if inside in PAGES:
        return PAGES[inside]
    return inside.removeprefix("docs/") if inside.startswith("docs/") else f"source/{inside}"
