"""What the exit codes of every command mean: the one list.

`--help` ends with a line of it, and docs/guide-operations.md shows the table
(`python -m pipeline.cli.codes`).
"""

import sys
from collections.abc import Mapping
from itertools import groupby

REFUSED = "it could not be done, one sentence says why"
DONE = {0: "done", 2: REFUSED}
PROCESS = {
    0: "told to stop, and stopped in good order",
    1: "it failed, nothing is lost: start it again",
    2: "it refuses to start or to go on, one sentence says why: decide, then start it again",
}

CODES: Mapping[str, Mapping[int, str]] = {
    "worker": PROCESS,
    "evaluator": PROCESS,
    "doctor": {0: "healthy", 1: "problems", 2: REFUSED},
    "topics check": {0: "all as it should be", 1: "something differs", 2: REFUSED},
    "topics apply": {0: "done", 1: "done, but something is left for you to decide", 2: REFUSED},
    "snapshot list": {0: "all are whole", 1: "at least one is damaged", 2: REFUSED},
    "journal replay": {0: "all equal", 1: "something differs", 2: REFUSED},
    "dead-letters redrive": {
        0: "done",
        1: "some could not be sent back, or another redrive took over",
        2: REFUSED,
    },
    "demo": {
        0: "every record was answered",
        1: "some were not",
        2: REFUSED,
        130: "stopped by Ctrl-C",
    },
    "snapshot inspect": DONE,
    "journal skip": DONE,
    "journal retry": DONE,
    "dead-letters list": DONE,
    "watch": DONE,
    "produce": DONE,
    "play": DONE,
    "backtest": DONE,
    "bench": DONE,
}


def codes(command: str) -> str:
    """The line about them in a command's `--help`."""
    return f"Exit codes: {'; '.join(f'{code}: {said}' for code, said in CODES[command].items())}."


def page() -> str:
    """The table of the documentation; neighbours with the same codes are one row."""
    rows = ["| command | 0 | 1 | 2 |", "|---|---|---|---|"]
    for said, named in groupby(CODES, CODES.__getitem__):
        commands = ", ".join(f"`{command}`" for command in named)
        more = "".join(f"; {code}: {text}" for code, text in said.items() if code > 2)
        rows.append(f"| {commands} | {said[0]} | {said.get(1, '')} | {said[2]}{more} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
