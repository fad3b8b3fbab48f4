"""Hypothesis strategies: any walk a stream may take through the learner."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from dtgol_core.config import Config
from tests.support.records import Event, FeatureEvent, LabelEvent

numbers = st.one_of(
    st.floats(-3, 3),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1e150, -1e150, 5e-324, 1e-160, 10**150, 0.1]),
    st.floats(-1e150, 1e150),
)
values = {
    "a": numbers,
    "b": numbers,
    "whole": st.integers(-30, 30),
    "flag": st.booleans(),
    "level": st.sampled_from(["x", "y", "", "ü"]) | st.text(max_size=3),
    "constant": st.just(7),
}
records = st.fixed_dictionaries({}, optional={name: st.none() | v for name, v in values.items()})
bad_values = st.sampled_from([float("nan"), float("inf"), -1.1e150, 10**400, [1], {"a": 1}])
bad_records = st.builds(lambda record, bad: {**record, "bad": bad}, records, bad_values)
times = st.none() | st.integers(-20_000, 20_000)
ids = st.integers(0, 45).map("r{}".format)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(FeatureEvent, ids, records, times),
    st.builds(FeatureEvent, ids, records, times),
    st.builds(LabelEvent, ids, st.integers(0, 1), times),
    st.builds(FeatureEvent, ids, bad_records, times),
)
walks = st.integers(0, 45).flatmap(lambda n: st.lists(events, min_size=n, max_size=n))
"""Lengths drawn first: left to itself, Hypothesis keeps lists so short that nothing fills up."""

_delay: st.SearchStrategy[Mapping[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "expire_steps": st.integers(5, 12),
            "pending_max": st.integers(5, 9),
            "early_max": st.integers(0, 3),
            "early_steps": st.integers(1, 4),
            "settled_max": st.integers(0, 6),
            "corrected": st.sampled_from(["first", "last"]),
        },
        optional={
            "expire_ms": st.integers(1, 10_000),
            "release": st.just("step"),
            "steps": st.integers(0, 4),
        },
    ),
)
_settings: st.SearchStrategy[Mapping[str, Any]] = st.fixed_dictionaries(
    {
        "copula": st.fixed_dictionaries({"window": st.integers(2, 12)}),
        "graph": st.fixed_dictionaries(
            {"unverified": st.integers(1, 12), "verified": st.integers(1, 6)},
            optional={"refresh_steps": st.integers(1, 6), "percentile": st.integers(0, 100)},
        ),
        "delay": _delay,
    },
    optional={
        "tracks": st.sampled_from([{"transient_reduction": "sum"}, {"l2": 0.5, "rate": 2.0}]),
        "softlabels": st.just({"frontier_steps": 2, "refine_steps": 3, "rate": 1.0}),
        "ablate": st.sampled_from(["copula", "marginals", "softlabels", "dual_track", "risk"]).map(
            lambda name: {name: True}
        ),
    },
)
configs = _settings.map(Config.read)
