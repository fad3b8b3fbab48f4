"""One list of reasons: whatever refuses a record, its reason is in it and documented."""

import ast
from typing import get_args

from dtgol_core.types import RejectionReason
from topics.generate import FOLDER
from topics.reasons import Reason


def test_every_reason_of_the_learner_is_a_reason_of_a_dead_letter() -> None:
    """The fold turns the one into the other."""
    given = get_args(RejectionReason)
    assert set(given) == {
        "kind-conflict",
        "out-of-range",
        "not-finite",
        "out-of-bounds",
        "too-many-columns",
        "feature-name",
    }
    assert [Reason(reason) for reason in given]


def test_reasons_are_different_and_readable() -> None:
    texts = [str(reason) for reason in Reason]
    assert len(set(texts)) == len(texts)
    assert all(text == text.lower() and " " not in text for text in texts)
    assert all(reason.name == reason.value.upper().replace("-", "_") for reason in Reason)


def test_the_core_gives_no_other_reason() -> None:
    """Every `Rejection(…)` in the core is made with a literal that the enumeration has.

    The core may not import the contracts, so the two lists are compared here.
    """
    given = set()
    for path in (FOLDER.parent / "dtgol_core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Rejection":
                first = node.args[0] if node.args else node.keywords[0].value
                assert isinstance(first, ast.Constant), f"{path.name}:{node.lineno}"
                given.add(first.value)
    assert given == set(get_args(RejectionReason)) <= set(map(str, Reason))
