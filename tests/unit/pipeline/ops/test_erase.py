"""Which records hold an id."""

import pytest

from pipeline.ops.erase import is_about


@pytest.mark.parametrize(
    ("value", "about"),
    [
        (b'{"id":"7","x":{}}', True),
        (b'{"id":7,"stream":null,"y":1}', True),
        (b'{"id":"8","defaulted":["7"]}', True),
        (b'{"id":"7","stream":"other"}', False),
        (b'{"erase":"8a4de21a67b0f915","stream":"default"}', False),
        (b"not json", False),
        (None, False),
    ],
)
def test_a_record_is_about_an_id_or_not(value: bytes | None, about: bool) -> None:
    assert is_about(value, "default", "7") is about
