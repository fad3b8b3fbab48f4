"""The fenced blocks of README.md, CONTRIBUTING.md and docs/, and what is done with each.

Every fence names its language. ``sh`` and ``python`` are run (`test_blocks.py`), all blocks of a
page in order and in one folder; ``toml`` and ``yaml`` are read; ``text`` is no code. A comment on
the line before a fence says otherwise, and is not seen on the page:

- ``<!-- not run: WHY -->``: nobody runs it; it is listed in docs/examples.md;
- ``<!-- run on a broker -->``: run by `tests/broker/test_examples.py`, on a real Kafka;
- ``<!-- run by tests/… -->``: that test takes the block from the page.

``python -m tests.examples.blocks > docs/examples.md`` writes the list.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
NOT_RUN, ON_A_BROKER, RUN_BY = "not run: ", "run on a broker", "run by "
RUN, READ, NO_CODE = ("sh", "python"), ("toml", "yaml"), ("text",)
FENCE = re.compile(
    r"^(?:<!-- (?P<tag>[^\n]*?) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
HEAD = """# Which commands and code blocks are run by a test

Written by `python -m tests.examples.blocks > docs/examples.md`; a test compares. Every block of
README.md, CONTRIBUTING.md and these pages is run by a test, or stands below with what it needs.
`make test` runs those that need Python alone (`tests/examples/`), `make test-kafka` those that need
a broker (`tests/broker/test_examples.py`). There the address of the broker and the number of copies
are exchanged, commands that never end get a Ctrl-C after some seconds, and nothing else is changed.

| page | blocks run by `make test` | on a broker | by a test of its own | settings, read | not run |
|---|---:|---:|---:|---:|---:|
"""
LIST = """
## Not run

| where | begins with | needs |
|---|---|---|
"""


class Block(NamedTuple):
    """One fence; ``line`` is that of its opening."""

    page: str
    line: int
    language: str
    tag: str
    text: str

    @property
    def where(self) -> str:
        """For a message."""
        return f"{self.page}:{self.line}"

    @property
    def fate(self) -> str:
        """What is done with it: run, broker, by, read, not or none; empty if that is not said."""
        if self.tag:
            starts = {NOT_RUN: "not", ON_A_BROKER: "broker", RUN_BY: "by"}
            return next((fate for start, fate in starts.items() if self.tag.startswith(start)), "")
        fates = (
            dict.fromkeys(RUN, "run") | dict.fromkeys(READ, "read") | dict.fromkeys(NO_CODE, "none")
        )
        return fates.get(self.language, "")


def pages() -> list[str]:
    """Every page that is looked at, from the root of the repository."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in files]


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    text = (ROOT / page).read_text()
    found = []
    for each in FENCE.finditer(text):
        line = text.count("\n", 0, each.start("language")) + 1
        found.append(Block(page, line, each["language"], each["tag"] or "", each["text"]))
    return found


def list_page() -> str:
    """docs/examples.md."""
    rows, missing = [], []
    for page in pages():
        found = blocks(page)
        counts = [
            sum(each.fate == fate for each in found)
            for fate in ("run", "broker", "by", "read", "not")
        ]
        link = page.removeprefix("docs/") if page.startswith("docs/") else f"../{page}"
        if any(counts):
            cells = " | ".join(str(count or "") for count in counts)
            rows.append(f"| [{page.removeprefix('docs/')}]({link}) | {cells} |\n")
        for each in found:
            if each.fate == "not":
                first = (
                    each.text.strip()
                    .splitlines()[0]
                    .partition("  #")[0]
                    .replace("|", "\\|")
                    .strip()
                )
                why = each.tag.removeprefix(NOT_RUN)
                missing.append(f"| [{page.removeprefix('docs/')}]({link}) | `{first}` | {why} |\n")
    return HEAD + "".join(rows) + LIST + "".join(missing)


if __name__ == "__main__":
    sys.stdout.write(list_page())
