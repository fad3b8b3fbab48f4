"""What a check finds: one sentence each, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing, or could not be asked; not a fault."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``advice`` says what to do, where there is something to do."""

    check: str
    status: Status
    text: str
    advice: str = ""


def fine(check: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Status.OK, text)


def note(check: str, text: str, advice: str = "") -> Finding:
    """Worth knowing."""
    return Finding(check, Status.NOTE, text, advice)


def problem(check: str, text: str, advice: str) -> Finding:
    """Something to repair."""
    return Finding(check, Status.PROBLEM, text, advice)


def verdict(findings: Iterable[Finding]) -> str:
    """The last line: healthy, or how many things to repair, the first of them."""
    problems = [each for each in findings if each.status is Status.PROBLEM]
    if not problems:
        return "healthy: nothing to do"
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f"{count}; begin with: {problems[0].advice or problems[0].text}"
