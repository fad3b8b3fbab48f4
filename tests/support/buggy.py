"""The real command with a real bug: the learner raises on one id, the evaluator on its label.

``python -m tests.support.buggy ID worker ...`` is ``dtgol worker ...`` with it. The product has no
hook for this; the learner is changed from outside before the command runs.
"""

import sys
from typing import Any

from dtgol_core.learner import Learner
from pipeline.cli import main
from pipeline.evaluation.pairing import Evaluation
from topics.labels import Label

SECRET = "what a patient told us"


def poison(id: str) -> None:
    """From now on a record with this id brings the learner down, in the middle of its work."""
    observe = Learner.observe

    def buggy(self: Learner, seen: str, *rest: Any, **more: Any) -> Any:
        forecast = observe(self, seen, *rest, **more)
        if seen == id:
            raise ZeroDivisionError(SECRET)
        return forecast

    Learner.observe = buggy  # type: ignore[method-assign, assignment]
    label = Evaluation.label

    def buggy_label(self: Evaluation, seen: Label, offset: int) -> Any:
        scores = label(self, seen, offset)
        if seen.id == id:
            raise ZeroDivisionError(SECRET)
        return scores

    Evaluation.label = buggy_label  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    poison(sys.argv.pop(1))
    main()
