"""Where the tables of a benchmark go: standard output, and a section of a page of docs.

A section of the page stands between two markers, ``<!-- NAME -->`` and ``<!-- /NAME -->``; what is
around it is not touched, so that each benchmark writes its own tables and prose stays.
"""

import re
from collections.abc import Sequence
from pathlib import Path


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_section(path: Path, name: str, text: str) -> None:
    """Put the text between the markers of that name; at the end of the page if it has none.

    >>> import tempfile
    >>> page = Path(tempfile.mkdtemp()) / "page.md"
    >>> _ = page.write_text("a\\n<!-- x -->\\nold\\n<!-- /x -->\\nb\\n")
    >>> write_section(page, "x", "new")
    >>> page.read_text()
    'a\\n<!-- x -->\\nnew\\n<!-- /x -->\\nb\\n'
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    page = path.read_text() if path.exists() else ""
    if begin in page:
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        page = re.sub(pattern, lambda _: section, page, flags=re.DOTALL)
    else:
        page = f"{page.rstrip()}\n\n{section}\n".lstrip()
    path.write_text(page)
