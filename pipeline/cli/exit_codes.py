"""What the exit codes of every command mean: the one list.

`--help` ends with a line of it, and docs/guide-operations.md shows the table
(`python -m pipeline.cli.exit_codes`).
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import groupby

from pipeline.errors import REFUSED, FencedError, exit_code

COULD_NOT = "it could not be done, one sentence says why"
DONE = {0: "done", 2: COULD_NOT}
PROCESS = {
    0: "stopped by a signal, in good order",
    1: "it failed, nothing is lost: start it again",
    2: "it refuses to start or to go on, one sentence says why: decide, then start it again",
}

CODES: Mapping[str, Mapping[int, str]] = {
    "worker": PROCESS,
    "evaluator": PROCESS,
    "doctor": {0: "healthy", 1: "problems", 2: COULD_NOT},
    "topics check": {0: "all as it should be", 1: "something differs", 2: COULD_NOT},
    "topics apply": {0: "done", 1: "done, but something is left for you to decide", 2: COULD_NOT},
    "snapshot list": {0: "all are whole", 1: "at least one is damaged", 2: COULD_NOT},
    "journal replay": {0: "all equal", 1: "something differs", 2: COULD_NOT},
    "dead-letters redrive": {
        0: "done",
        1: "some could not be sent back, or another redrive took over",
        2: COULD_NOT,
    },
    "demo": {
        0: "every record was answered",
        1: "some were not",
        2: COULD_NOT,
        130: "stopped by Ctrl-C",
    },
    "snapshot inspect": DONE,
    "journal archive": DONE,
    "erase": DONE,
    "journal skip": DONE,
    "journal retry": DONE,
    "journal retype": DONE,
    "dead-letters list": DONE,
    "watch": DONE,
    "predictions": DONE,
    "broker": DONE,
    "produce": DONE,
    "play": DONE,
    "backtest": DONE,
    "compare": DONE,
}
INTERRUPTED = 130
"""As of a shell: 128 and the number of SIGINT."""
STOPPED = {
    "compare": "finished runs are kept: run it again, it goes on behind them",
    "dead-letters redrive": "what was sent back has its marker: run it again, it sends the rest",
    "erase": "run it again: a request that comes twice does no harm",
    "journal archive": "the files that are written stay: run it again, it goes on behind them",
    "journal replay": "nothing was changed",
    "produce": "what was sent stays: run it again with the same options, and rows that were sent "
    "count as repeats",
    "topics apply": "run it again: it makes what is missing",
}
"""What stands when Ctrl-C ends a command in the middle, and what to do."""
RESTARTED = ("worker", "evaluator")
"""Commands that a supervisor starts again when they end with 1."""


def code_for(command: str, error: Exception) -> int | None:
    """The exit code of a command that ends with an error; None for an error that is a bug.

    For worker and evaluator it is the error's own code, by which a supervisor decides whether to
    restart. The other commands use 1 for a result (above), so an error is always 2 for them. The
    exception is a redrive that another one has fenced: it has sent back only a part, which is 1.
    """
    code = exit_code(error)
    if code is None or command in RESTARTED or isinstance(error, FencedError):
        return code
    return REFUSED


def stopped(words: Sequence[str]) -> str:
    """The sentence of a command that Ctrl-C has ended; ``words`` are its name and arguments."""
    for name in (" ".join(words[:2]), *words[:1]):
        if name in STOPPED:
            return f"stopped; {STOPPED[name]}"
    return "stopped"


def help_line(command: str) -> str:
    """The line about exit codes in a command's `--help`."""
    meanings = "; ".join(f"{code}: {meaning}" for code, meaning in CODES[command].items())
    return f"Exit codes: {meanings}."


def page() -> str:
    """The table of the documentation; neighbours with the same codes are one row."""
    rows = ["| command | 0 | 1 | 2 |", "|---|---|---|---|"]
    for meanings, named in groupby(CODES, CODES.__getitem__):
        commands = ", ".join(f"`{command}`" for command in named)
        more = "".join(f"; {code}: {text}" for code, text in meanings.items() if code > 2)
        rows.append(f"| {commands} | {meanings[0]} | {meanings.get(1, '')} | {meanings[2]}{more} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
