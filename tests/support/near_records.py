"""Strategies: any JSON, and records that are nearly features or labels (about half are)."""

from typing import Any

from hypothesis import strategies as st

TS = 1_767_225_600_000
FIELDS = ("stream", "id", "x", "y", "ts", "more")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(-1e200, 1e200) | st.text()
good_records = st.fixed_dictionaries(
    {
        "stream": st.sampled_from(["ward-3", None]),
        "id": st.text(min_size=1, max_size=4) | st.integers(),
        "x": st.dictionaries(st.text(max_size=8), scalars, max_size=4),
        "y": st.sampled_from([0, 1, False, True]),
        "ts": st.integers(0, TS) | st.none(),
    }
)


def _spoil(record: dict[str, Any], changes: dict[str, Any], left_out: set[str]) -> dict[str, Any]:
    return {name: raw for name, raw in (record | changes).items() if name not in left_out}


near_records = st.builds(
    _spoil,
    good_records,
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=2),
    st.sets(st.sampled_from(FIELDS), max_size=1),
)
