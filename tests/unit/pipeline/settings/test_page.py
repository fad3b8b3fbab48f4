"""The settings as text: complete, and the page of the docs as generated."""

from pathlib import Path

from pipeline.settings.declaration import declared, variable
from pipeline.settings.page import help_text, page


def test_every_setting_has_a_meaning_and_numbers_have_bounds() -> None:
    for section, item in declared():
        assert item.metadata["doc"].endswith("."), f"{section}.{item.name}"
        if isinstance(item.default, int) and not isinstance(item.default, bool):
            assert item.metadata["low"] is not None, f"{section}.{item.name}"


def test_every_setting_is_in_the_help_and_on_the_page_of_the_docs() -> None:
    written = (Path(__file__).parents[4] / "docs" / "settings.md").read_text()
    assert written == page(), "run: python -m pipeline.settings.page > docs/settings.md"
    for section, item in declared():
        assert f"{section}.{item.name} =" in help_text()
        assert f"`{variable(section, item.name)}`" in written
