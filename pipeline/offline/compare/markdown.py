"""Markdown tables: numbers as they are printed, the best of a row or column in bold."""

import math
from collections.abc import Callable, Sequence

from pipeline.offline.compare.tally import MORE_IS_BETTER


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def digits(value: float, places: int = 3) -> str:
    """A number, or a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.{places}f}"


def in_bold(values: Sequence[float], texts: Sequence[str], metric: str) -> list[str]:
    """The texts of the values, the best one in bold, ties as they are printed.

    >>> in_bold([0.2, 0.1, 0.1001], ["0.200", "0.100", "0.100"], "cer")
    ['0.200', '**0.100**', '**0.100**']
    """
    known = [round(value, 3) for value in values if not math.isnan(value)]
    if not known:
        return list(texts)
    choose: Callable[[list[float]], float] = max if metric in MORE_IS_BETTER else min
    best = choose(known)
    return [
        f"**{text}**" if round(value, 3) == best else text
        for value, text in zip(values, texts, strict=True)
    ]
