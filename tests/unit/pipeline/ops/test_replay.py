"""Where a replay of the journal begins; the replay itself runs in tests/broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.errors import RefusalError
from pipeline.ops.replay import start_fold
from tests.support.journal import REF
from tests.unit.pipeline.ops.conftest import Saved


def test_a_replay_begins_where_the_journal_still_is(saved: Saved) -> None:
    assert start_fold(REF, 0, None).next_offset == 0
    assert start_fold(REF, 0, saved.store).next_offset == 10
    assert start_fold(REF, 11, saved.store).next_offset == 20
    with pytest.raises(RefusalError, match="--from snapshot"):
        start_fold(REF, 1, None)
    with pytest.raises(RefusalError, match="no whole snapshot"):
        start_fold(REF, 21, saved.store)


def test_snapshots_of_another_journal_are_refused(saved: Saved) -> None:
    with pytest.raises(RefusalError, match="belong to another journal"):
        start_fold(replace(REF, journal_id="another"), 0, saved.store)
