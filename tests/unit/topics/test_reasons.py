"""One list of reasons: whatever refuses a record, its reason is in it and documented."""

import ast
import re
from typing import get_args

from dtgol_core.config import Config
from dtgol_core.types import RejectionReason
from pipeline.settings.declaration import declared
from topics.generate import FOLDER
from topics.reasons import Reason, page


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


def test_every_reason_says_what_it_means_and_what_to_do_on_the_page_of_the_docs() -> None:
    for reason in Reason:
        assert reason.meaning.endswith(".")
        assert reason.remedy.endswith(".")
    written = (FOLDER.parent / "docs" / "dead-letters.md").read_text()
    assert written == page(), "run: python -m topics.reasons > docs/dead-letters.md"


def test_every_setting_and_command_that_a_remedy_names_exists() -> None:
    settings = {f"{section}.{item.name}" for section, item in declared()}
    learner = Config().as_mapping()
    for reason in Reason:
        for section, key in re.findall(r"`([a-z]+)\.([a-z_]+)", reason.remedy):
            assert f"{section}.{key}" in settings or key in learner[section], reason


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
