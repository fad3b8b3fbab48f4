"""The run whose calls and instructions are counted: always the same records."""

import numpy as np

from dtgol_core.config import Config
from dtgol_core.learner import Learner

COLUMNS, DELAY, WARM, COUNTED = 16, 50, 300, 200


class Run:
    """A learner after `WARM` records; `go_on` observes and learns `COUNTED` more."""

    def __init__(self, preset: str) -> None:
        self.learner = Learner(Config.read({} if preset == "default" else {"preset": preset}))
        values = np.random.default_rng(3).normal(size=(WARM + COUNTED, COLUMNS))
        seen = np.random.default_rng(4).random((WARM + COUNTED, COLUMNS)) < 0.5
        self.records = [
            {f"f{n}": float(row[n]) for n in range(COLUMNS) if here[n]}
            for row, here in zip(values, seen, strict=True)
        ]
        self._go(range(WARM))

    def go_on(self) -> None:
        self._go(range(WARM, WARM + COUNTED))

    def _go(self, steps: range) -> None:
        for step in steps:
            if step >= DELAY:
                self.learner.learn(str(step - DELAY), step % 3 % 2)
            self.learner.observe(str(step), self.records[step])
