"""Adaptive conformal sets again, from the notes of `dtgol_core.conformal`: lists, sorted."""

import math


class PlainSets:
    """Keeps every score there ever was."""

    def __init__(self, coverage: float) -> None:
        self.coverage = coverage
        self.levels = [coverage, coverage]
        self.scores: list[list[float]] = [[], []]
        self.missed: list[list[bool]] = [[], []]

    def has(self, p: float, y: int) -> bool:
        """Whether the score of y is at most the conformal quantile of the newest 500 of class y."""
        newest = sorted(self.scores[y][-500:])
        rank = math.ceil((len(newest) + 1) * self.levels[y])
        if rank > len(newest):
            return True
        return rank >= 1 and (p, 1 - p)[y] <= newest[rank - 1]

    def of(self, p: float) -> tuple[int, ...]:
        """The classes that are in, or both where none is."""
        return tuple(y for y in (0, 1) if self.has(p, y)) or (0, 1)

    def learn(self, p: float, y: int) -> None:
        """A label."""
        missed = not self.has(p, y)
        self.missed[y].append(missed)
        self.levels[y] += 0.005 * (missed - (1 - self.coverage))
        self.scores[y].append((p, 1 - p)[y])
