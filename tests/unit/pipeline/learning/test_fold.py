"""The fold: once per source record, every label outcome, bad input, configuration as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from dtgol_core import ids
from dtgol_core.columns import CONTINUOUS
from dtgol_core.config import Config
from dtgol_core.ids import hash_text
from dtgol_core.state import encode
from pipeline.errors import RefusalError
from pipeline.kafka.record import Record
from pipeline.learning.early import EarlyLabel
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FOLD_VERSION, FoldConfig, Lineage
from tests.support.journal import (
    REF,
    START_MS,
    Journal,
    fold_all,
    letters,
    predictions,
    restore_fold,
)
from topics.catalog import HEADROOM_BYTES
from topics.codec import read_prediction, write_erasure
from topics.headers import write_headers
from topics.journal import (
    ConfigChange,
    FeatureKind,
    Padding,
    RecordKind,
    Reset,
    Retype,
    Skip,
    Source,
    Version,
)
from topics.labels import Erasure
from topics.reasons import Rejection


def fold_config(learner: dict[str, Any] | None = None, **more: Any) -> FoldConfig:
    return replace(FoldConfig(), learner=Config.read(learner or {}), **more)


def change(new: FoldConfig) -> ConfigChange:
    return ConfigChange(new.digest(), new.as_mapping())


def test_features_are_answered_with_an_identity_and_the_producers_headers() -> None:
    journal = Journal()
    value = orjson.dumps({"stream": "ward", "id": 7, "x": {"a": 1.5}, "ts": 5})
    journal.copy("features", value, key=b"k", headers=[("trace", b"1"), ("dtgol-x", b"2")])
    _, (output,) = fold_all(journal.records)
    prediction = read_prediction(output.value)
    assert not isinstance(prediction, Rejection)
    assert (prediction.stream, prediction.id, prediction.step, prediction.ts) == ("ward", "7", 1, 5)
    assert (prediction.at.journal, prediction.at.offset) == ("journal-id", 0)
    assert output.key == b"k"
    assert output.headers == [("trace", b"1")]


def test_a_prediction_names_what_was_missing_and_carries_the_deadline() -> None:
    journal = Journal()
    journal.control(change(fold_config({"delay": {"expire_ms": 60_000}})))
    journal.features("a", {"pulse": 80, "ward": "B"})
    journal.features("b", {"ward": "B", "pulse": None})
    first, second = predictions(fold_all(journal.records)[1])
    assert (first["missing"], second["missing"]) == ([], ["pulse"])
    assert second["expire_ms"] == 60_000


def test_a_cloud_event_in_binary_mode_is_answered_and_its_attributes_come_back() -> None:
    """Attributes are headers, the data is the value: nothing special is needed."""
    journal = Journal()
    attributes = [
        *(("ce_specversion", b"1.0"), ("ce_id", b"e-1"), ("ce_type", b"ward.vitals")),
        *(("ce_source", b"/ward/3"), ("content-type", b"application/json")),
    ]
    journal.copy("features", b'{"id": "a", "x": {"v": 1}}', key=b"k", headers=attributes)
    _, (output,) = fold_all(journal.records)
    assert output.topic == "predictions"
    assert output.headers == attributes


def test_a_record_that_comes_again_is_dropped() -> None:
    journal = Journal()
    first = journal.features("a", {"v": 1})
    journal.again(first)
    fold, outputs = fold_all(journal.records)
    assert len(outputs) == 1
    assert fold.counts["records/duplicate"] == 1


def test_a_broken_chain_is_not_applied_and_heals_when_it_comes_again() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    lost = Journal(sources={"features": 0})
    missing = lost.features("b", {"v": 2})
    ahead = lost.features("c", {"v": 3})
    journal.again(ahead)
    journal.again(missing)
    journal.again(ahead)
    fold, outputs = fold_all(journal.records)
    assert [prediction["id"] for prediction in predictions(outputs)] == ["a", "b", "c"]
    assert fold.counts["records/broken"] == 1


def test_a_source_that_was_recreated_starts_a_chain_of_its_own() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    source = Source(RecordKind.COPY, "features", "another-id", 0, 0, -1, START_MS)
    journal.append(b"k", b'{"id":"b","x":{}}', write_headers(source))
    fold, outputs = fold_all(journal.records)
    assert len(predictions(outputs)) == 2
    assert len(fold.marks.offsets) == 2


def test_an_offset_folded_before_is_our_bug() -> None:
    journal = Journal()
    record = journal.features("a")
    fold, _ = fold_all([record])
    with pytest.raises(AssertionError, match="already folded"):
        fold.apply(record)


def test_a_label_on_time_is_learnt_at_the_next_step() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.label("a", 1)
    journal.features("b", {"v": 2})
    fold, outputs = fold_all(journal.records)
    assert predictions(outputs)[1]["labels_learnt"] == 1
    assert fold.counts["labels/queued"] == 1
    assert fold.counts["labels/learnt"] == 1


def test_an_early_label_is_held_and_learnt_with_its_features() -> None:
    journal = Journal()
    journal.features("first of its stream", {"v": 1})
    journal.label("a", 1)
    journal.features("a", {"v": 1})
    journal.features("b", {"v": 2})
    fold, outputs = fold_all(journal.records)
    assert fold.counts["labels/early"] == 1
    assert predictions(outputs)[2]["labels_learnt"] == 1
    assert not letters(outputs)
    assert not fold.streams["default"].early


def test_an_early_label_whose_features_never_come_is_a_dead_letter_with_its_bytes() -> None:
    fold = Fold(REF, fold_config({"delay": {"early_steps": 1}}))
    journal = Journal()
    journal.features("first of its stream", {"v": 1})
    early = journal.copy("labels", b'{"id":"never","y":1}', b"its key", [("trace", b"9")])
    for id in "abc":
        journal.features(id, {"v": 1})
    _, outputs = fold_all(journal.records, fold)
    ((letter, output),) = letters(outputs)
    assert (letter.reason, letter.topic, letter.offset) == ("label-orphan", "labels", 0)
    assert (output.key, output.value) == (early.key, early.value)
    assert output.headers[0] == ("trace", b"9")


def test_more_early_labels_than_allowed_give_up_the_oldest() -> None:
    fold = Fold(REF, fold_config({"delay": {"early_max": 1}}))
    journal = Journal()
    journal.features("first of its stream", {"v": 1})
    journal.label("first", 1)
    journal.label("second", 1)
    _, outputs = fold_all(journal.records, fold)
    ((letter, _),) = letters(outputs)
    assert (letter.reason, letter.offset) == ("label-orphan", 0)
    assert list(fold.streams["default"].early) == ["second"]


def test_more_bytes_of_early_labels_than_allowed_give_up_the_oldest() -> None:
    journal = Journal()
    journal.features("first of its stream", {"v": 1})
    for id in ("first", "second", "third"):
        journal.label(id, 1)
    label = journal.records[1]
    size = EarlyLabel(0, label.key or b"", label.value or b"", (), 0).size
    fold = Fold(REF, fold_config(early_bytes_max=3 * size))
    _, outputs = fold_all(journal.records, fold)
    ((letter, _),) = letters(outputs)
    assert (letter.reason, letter.offset, letter.topic_id) == ("label-orphan", 0, "labels-id")
    stream = fold.streams["default"]
    assert list(stream.early) == ["second", "third"]
    assert stream.learner.delay.early_labels == 2
    assert stream.early_bytes == sum(label.size for label in stream.early.values()) <= 3 * size
    taken = fold.snapshot()
    again = restore_fold(taken.state, taken.changed)
    assert again.streams["default"].early_bytes == stream.early_bytes
    assert again.streams["default"].early == stream.early
    assert {label.topic_id for label in stream.early.values()} == {"labels-id"}
    journal.features("second", {"v": 1})
    fold.apply(journal.records[-1])
    assert stream.early_bytes == stream.early["third"].size


def test_without_room_for_early_labels_each_is_a_dead_letter_at_once() -> None:
    fold = Fold(REF, fold_config({"delay": {"early_max": 0}}))
    journal = Journal()
    journal.features("first of its stream", {"v": 1})
    journal.label("a", 1)
    _, outputs = fold_all(journal.records, fold)
    assert letters(outputs)[0][0].reason == "label-orphan"


def test_a_label_after_its_instance_expired_is_late() -> None:
    fold = Fold(REF, fold_config({"delay": {"expire_steps": 1}}))
    journal = Journal()
    for id in "abc":
        journal.features(id, {"v": 1})
    late = journal.label("a", 1)
    _, outputs = fold_all(journal.records, fold)
    ((letter, output),) = letters(outputs)
    assert letter.reason == "label-late"
    assert output.value == late.value
    assert fold.counts["labels/late"] == fold.counts["instances/expired"] == 1


def test_a_repeated_label_is_counted_and_ignored() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.label("a", 1)
    journal.label("a", 1)
    journal.label("a", 0)
    fold, outputs = fold_all(journal.records)
    assert fold.counts["labels/repeated"] == fold.counts["labels/corrected-replaced"] == 1
    assert len(outputs) == 1


def test_a_corrected_early_label_keeps_the_newer_bytes() -> None:
    fold = Fold(REF, fold_config({"delay": {"corrected": "last", "early_steps": 1}}))
    journal = Journal()
    journal.features("first of its stream", {"v": 1})
    journal.label("a", 1)
    newer = journal.label("a", 0)
    for id in "bcd":
        journal.features(id, {"v": 1})
    _, outputs = fold_all(journal.records, fold)
    assert fold.counts["labels/corrected-replaced"] == 1
    assert letters(outputs)[0][1].value == newer.value


def test_a_repeated_id_is_answered_again_and_says_so() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.features("a", {"v": 1})
    fold, outputs = fold_all(journal.records)
    assert [prediction["repeat"] for prediction in predictions(outputs)] == [False, True]
    assert fold.counts["features/repeat"] == 1


BAD = [
    ("features", b"k", b"{", "not-json"),
    ("features", b"k", b'{"id":"a","x":{"v":NaN}}', "not-json"),
    ("features", b"k", b"[]", "not-an-object"),
    ("features", b"k", b"", "empty-value"),
    ("features", b"k", None, "empty-value"),
    ("features", None, b'{"id":"a","x":{}}', "null-key"),
    ("features", b"k", b'{"x":{}}', "missing-id"),
    ("features", b"k", b'{"id":"%s","x":{}}' % (b"i" * 257), "id-too-long"),
    ("features", b"k", b'{"id":"a","x":{"v":[1]}}', "nested-value"),
    ("features", b"k", b'{"id":"a","x":3}', "wrong-type"),
    ("labels", b"k", b'{"id":"a","y":2}', "label-not-binary"),
    ("labels", b"k", b'{"id":"a"}', "missing-field"),
]


@pytest.mark.parametrize(("topic", "key", "value", "reason"), BAD)
def test_bad_input_is_a_dead_letter_and_the_next_record_goes_on(
    topic: str, key: bytes | None, value: bytes | None, reason: str
) -> None:
    journal = Journal()
    journal.copy(topic, value, key)
    journal.features("next", {"v": 1})
    fold, outputs = fold_all(journal.records)
    letter, output = letters(outputs)[0]
    assert (letter.reason, letter.topic, letter.offset) == (reason, topic, 0)
    assert (output.key, output.value) == (key, value)
    assert fold.counts[f"refusals/{reason}"] == fold.counts[f"{topic}/refused"] == 1
    assert predictions(outputs)[0]["id"] == "next"


def test_a_cell_of_another_kind_is_missing_and_counted() -> None:
    """Seen: one text first, and every number after it was a dead letter."""
    journal = Journal()
    journal.features("a", {"v": "n/a", "w": "unknown"})
    for n in range(29):
        journal.features(f"b{n}", {"v": n, "w": n})
    fold, outputs = fold_all(journal.records)
    assert not letters(outputs)
    assert len(predictions(outputs)) == 30
    assert fold.counts["cells/kind-conflict"] == 1


def test_a_retype_changes_one_feature_and_keeps_the_stream() -> None:
    journal = Journal()
    for n in range(30):
        journal.features(f"a{n}", {"v": "unknown", "w": n})
        journal.label(f"a{n}", n % 2)
    journal.features("before", {"v": 1.5})
    journal.control(Retype("default", "v", FeatureKind.CONTINUOUS, "a fault of the sensor"))
    journal.control(Retype("elsewhere", "v", FeatureKind.CONTINUOUS))
    journal.features("after", {"v": 1.5})
    fold, outputs = fold_all(journal.records)
    assert not letters(outputs)
    assert fold.counts["cells/kind-conflict"] == 1
    assert fold.counts["records/retype"] == 2
    learner = fold.streams["default"].learner
    assert learner.labels_learnt == 30
    assert learner.columns.features["v"].kind == CONTINUOUS


def test_another_kind_than_before_is_refused_inside_the_fold_where_it_is_strict() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.features("b", {"v": "text"})
    _, outputs = fold_all(journal.records, Fold(REF, fold_config({"columns": {"strict": True}})))
    letter, _ = letters(outputs)[0]
    assert letter.reason == "kind-conflict"
    assert "text" not in letter.detail


def test_more_streams_than_allowed_are_refused() -> None:
    fold = Fold(REF, fold_config(streams_max=1))
    journal = Journal()
    journal.features("a", {"v": 1}, stream="one")
    journal.features("b", {"v": 1}, stream="two")
    _, outputs = fold_all(journal.records, fold)
    assert [letter.reason for letter, _ in letters(outputs)] == ["too-many-streams"]


def test_unknown_streams_are_refused_when_streams_are_closed() -> None:
    fold = Fold(REF, fold_config(closed=True, streams={"known": Config()}))
    journal = Journal()
    journal.features("a", {"v": 1}, stream="known")
    journal.features("b", {"v": 1}, stream="other")
    _, outputs = fold_all(journal.records, fold)
    assert letters(outputs)[0][0].reason == "unknown-stream"


def test_an_idle_stream_is_evicted_by_the_clock_of_its_partition() -> None:
    fold = Fold(REF, fold_config(stream_idle_ms=1_000))
    journal = Journal()
    journal.features("a", {"v": 1}, stream="idle", ts=START_MS)
    journal.label("held", 1, stream="idle", ts=START_MS)
    journal.features("b", {"v": 1}, stream="busy", ts=START_MS + 1_000)
    fold_all(journal.records, fold)
    assert list(fold.streams) == ["idle", "busy"]
    outputs = fold.apply(journal.features("c", {"v": 1}, stream="busy", ts=START_MS + 1_001))
    assert list(fold.streams) == ["busy"]
    assert letters(outputs)[0][0].reason == "label-orphan"
    assert fold.counts["streams/evicted"] == 1


def test_a_time_far_ahead_is_capped_at_the_journals_time() -> None:
    fold = Fold(REF, fold_config(ts_ahead_max_ms=10))
    journal = Journal()
    record = journal.features("a", {"v": 1}, ts=START_MS * 2)
    _, outputs = fold_all(journal.records, fold)
    assert fold.clock_ms == record.timestamp_ms + 10
    assert predictions(outputs)[0]["ts"] == START_MS * 2


def test_a_stub_only_moves_the_mark() -> None:
    journal = Journal()
    journal.copy("features", None, kind=RecordKind.STUB)
    journal.features("a", {"v": 1})
    fold, outputs = fold_all(journal.records)
    assert len(outputs) == 1
    assert fold.counts["records/stub"] == fold.counts["refusals/too-large"] == 1


def test_a_stranger_in_the_journal_is_a_dead_letter() -> None:
    journal = Journal()
    journal.append(b"k", b"hello", [])
    _, outputs = fold_all(journal.records)
    ((letter, _),) = letters(outputs)
    assert (letter.reason, letter.topic) == ("bad-headers", "journal")


def test_skipped_offsets_are_never_applied() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.features("b", {"v": 1})
    journal.control(Skip(1, "poison"))
    fold, outputs = fold_all(journal.records, Fold(REF, skips=frozenset([1])))
    assert [prediction["id"] for prediction in predictions(outputs)] == ["a"]
    assert fold.counts["records/skipped"] == 1


def test_other_rules_hold_from_their_record_on() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    new = fold_config({"tracks": {"rate": 0.3}}, why=2)
    journal.control(change(new))
    journal.label("a", 1)
    journal.features("b", {"v": 1})
    fold, outputs = fold_all(journal.records)
    before, after = predictions(outputs)
    assert before["model"] != after["model"]
    assert (before["why"], len(after["why"])) == ([], 2)
    assert fold.config_digest == new.digest()
    assert after["labels_learnt"] == 1


def test_what_shapes_the_state_waits_for_a_reset() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    new = fold_config({"copula": {"window": 50}})
    journal.control(change(new))
    journal.features("b", {"v": 1})
    journal.control(Reset("default"))
    journal.features("c", {"v": 1})
    fold, outputs = fold_all(journal.records)
    assert [prediction["step"] for prediction in predictions(outputs)] == [1, 2, 1]
    assert fold.streams["default"].learner.config.copula.window == 50
    assert fold.counts["streams/unchanged"] == fold.counts["streams/reset"] == 1


def test_rules_that_cannot_be_read_change_nothing() -> None:
    journal = Journal()
    journal.control(ConfigChange("x", {"learner": {"copula": {"window": 1}}}))
    fold, outputs = fold_all(journal.records)
    assert letters(outputs)[0][0].reason == "bad-headers"
    assert fold.config == FoldConfig()


def test_unknown_fields_are_counted() -> None:
    journal = Journal()
    journal.features("a", {"v": 1}, colour="blue")
    fold, _ = fold_all(journal.records)
    assert fold.counts["records/unknown-fields"] == 1


def test_no_feature_value_and_no_id_leaves_in_a_dead_letters_detail() -> None:
    journal = Journal()
    journal.features("patient-77", {"v": 1})
    journal.features("patient-78", {"v": "secret-value"})
    journal.label("patient-79", 5)
    _, outputs = fold_all(journal.records)
    for letter, _ in letters(outputs):
        assert "secret" not in letter.detail
        assert "patient" not in letter.detail


def test_a_prediction_too_large_to_be_delivered_is_a_dead_letter() -> None:
    """The worker ended at every start, since the producer refused the prediction."""
    journal = Journal()
    bytes_max = FoldConfig().limits.record_bytes_max + HEADROOM_BYTES // 2
    headers = [("trace", b"x" * bytes_max)]
    journal.copy("features", orjson.dumps({"id": "a", "x": {"v": 1}}), headers=headers)
    journal.features("b", {"v": 1})
    fold, outputs = fold_all(journal.records)
    ((letter, _),) = letters(outputs[:1])
    assert (letter.reason, letter.topic, letter.offset) == ("too-large", "features", 0)
    assert [each["id"] for each in predictions(outputs[1:])] == ["b"]
    assert fold.counts["predictions/refused"] == fold.counts["refusals/too-large"] == 1


SMALL = {"experts": ["naive"], "copula": {"window": 50}}
"""A learner that takes little besides what waits."""


def fold_with_restores(records: Sequence[Record], fold: Fold, every: int) -> Fold:
    """Fold records, with a restore from a snapshot now and then."""
    for number, record in enumerate(records):
        fold.apply(record)
        if number % every == 0:
            taken = fold.snapshot()
            fold = restore_fold(taken.state, taken.changed)
    return fold


def test_what_waits_in_full_streams_gives_way_so_that_new_ones_find_room() -> None:
    """Two streams with full tables took all memory, and new ones were refused."""
    bytes_max = 2_000_000
    journal = Journal()
    journal.control(change(fold_config(SMALL, state_bytes_max=bytes_max)))
    x = {f"f{n}": 1.5 * n for n in range(16)}
    for number in range(2_500):
        journal.features(f"a{number}", x, stream="a")
    journal.label("a1000", 1, stream="a")  # its label has come: it is learnt, not forgotten
    for number in range(1_800):
        journal.features(f"b{number}", x, stream="b")
    journal.features("c", x, stream="c")
    journal.label("a0", 1, stream="a")
    fold, outputs = fold_all(journal.records)
    assert list(fold.streams) == ["b", "c", "a"]
    held = fold.streams.history_bytes.waiting
    assert held <= bytes_max // 2 + fold.streams["c"].learner.delay.pending_bytes
    alike = [fold.streams[name].learner.delay.pending_bytes for name in "ab"]
    assert max(alike) - min(alike) < bytes_max // 10  # who has most gives up first
    ((late, _),) = letters(outputs)
    assert (late.reason, late.detail.split(":")[0]) == ("label-late", "limits.state_bytes_max")
    assert fold.counts["labels/late/limits.state_bytes_max"] == fold.counts["labels/learnt"] == 1
    waiting = sum(stream.learner.pending for stream in fold.streams.values())
    assert fold.counts["instances/expired"] + fold.counts["labels/learnt"] + waiting == 4_301
    taken = fold.snapshot()
    again = restore_fold(taken.state, taken.changed)
    assert again.streams.history_bytes == fold.streams.history_bytes
    assert again.streams.state_bytes == fold.streams.state_bytes
    assert fold_with_restores(journal.records, Fold(REF), 900).digest() == fold.digest()


def test_ids_of_all_streams_share_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "CHUNK_IDS", 64)
    bytes_max = 400_000
    journal = Journal()
    journal.control(change(fold_config(SMALL, state_bytes_max=bytes_max)))
    for number in range(1_500):
        for stream in "ab":
            journal.features(f"{number}", {"v": 1.5}, stream=stream)
            journal.label(f"{number}", 1, stream=stream)
    fold, _ = fold_all(journal.records)
    assert 0 < fold.streams.history_bytes.ids <= bytes_max // 4 + 64 * ids.ID_BYTES
    for state in fold.streams.values():
        assert not state.learner.delay.knows("0", ids.id_hash("0"))
        assert state.learner.delay.knows("1400", ids.id_hash("1400"))
    assert fold_with_restores(journal.records, Fold(REF), 1_100).digest() == fold.digest()


def test_at_its_memory_a_partition_refuses_new_streams_and_new_features() -> None:
    """0.8 MB of JSON, 100 streams of 512 features, took 559 MB."""
    journal = Journal()
    journal.control(change(fold_config(state_bytes_max=1_000_000)))
    for number in range(20):
        x = {f"f{n}": 1.5 for n in range(200)}
        journal.features(f"i{number}", x, stream=f"s{number}")
    journal.features("more", {"new": 1.5}, stream="s0")
    journal.features("known", {"f0": 1.5}, stream="s0")
    fold, outputs = fold_all(journal.records)
    assert len(fold.streams) == 1
    assert fold.streams.state_bytes == fold.streams["s0"].learner_bytes > 1_000_000
    found = [(letter.reason, letter.detail.split(":")[0]) for letter, _ in letters(outputs)]
    assert found == [("state-full", "stream")] * 19 + [("state-full", "x")]
    assert [each["id"] for each in predictions(outputs)] == ["i0", "known"]
    assert fold.counts["refusals/state-full"] == 20
    taken = fold.snapshot()
    assert restore_fold(taken.state, taken.changed).streams.state_bytes == fold.streams.state_bytes
    fold.apply(journal.control(Reset("s0")))
    assert fold.streams.state_bytes == 0


def test_labels_open_no_streams_and_wait_for_the_first_features() -> None:
    journal = Journal()
    journal.label("a", 1, stream="s")
    journal.label("b", 0, stream="s")
    journal.label("a", 0, stream="s")
    fold, outputs = fold_all(journal.records)
    assert not fold.streams
    assert len(fold.streams.unopened) == 3
    taken = fold.snapshot()
    assert restore_fold(taken.state, taken.changed).digest() == fold.digest()
    _, more = fold_all([journal.features("a", {"v": 1}, stream="s")], fold)
    _, last = fold_all([journal.features("c", {"v": 1}, stream="s")], fold)
    assert not letters(outputs + more + last)
    assert not fold.streams.unopened
    assert fold.streams.unopened.early_bytes == 0
    assert predictions(last)[0]["labels_learnt"] == 1
    assert list(fold.streams["s"].early) == ["b"]
    assert fold.counts["labels/early"] == 2
    assert fold.counts["labels/corrected-replaced"] == 1


def test_labels_without_a_stream_are_bounded_with_all_early_ones_and_the_largest_holder_sheds() -> (
    None
):
    journal = Journal()
    journal.features("first", {"v": 1}, stream="good")
    journal.label("early", 1, stream="good")
    for number in range(5):
        journal.label(f"i{number}", 1, stream=f"s{number}")
    label = journal.records[1]
    size = EarlyLabel(0, label.key or b"", label.value or b"", (), 0).size
    fold, outputs = fold_all(journal.records, Fold(REF, fold_config(early_bytes_max=4 * size)))
    assert [letter.offset for letter, _ in letters(outputs)] == [1, 2]
    assert fold.counts["refusals/label-orphan"] == 2
    assert list(fold.streams["good"].early) == ["early"]
    assert fold.streams.unopened.early_bytes + fold.streams["good"].early_bytes <= 4 * size


def test_a_reset_and_an_erasure_reach_labels_without_a_stream() -> None:
    journal = Journal()
    for id in "abc":
        journal.label(id, 1, stream="s")
    fold, _ = fold_all(journal.records)
    fold.apply(journal.copy("labels", write_erasure(Erasure(hash_text("b"), "s"))))
    assert len(fold.streams.unopened) == 2
    outputs = fold.apply(journal.control(Reset("s")))
    assert [letter.offset for letter, _ in letters(outputs)] == [0, 2]
    assert not fold.streams.unopened


def test_a_backlog_of_labels_whose_clock_is_an_hour_slow_is_learnt_and_the_skew_is_known() -> None:
    """14,000 of 15,000 labels became orphans."""
    count, hour_ms = 15_000, 3_600_000
    journal = Journal()
    for number in range(count):
        journal.label(number, number % 2, ts=START_MS + number - hour_ms)
    for number in range(count):
        journal.features(number, {"v": number % 7}, ts=START_MS + number)
    fold = Fold(REF, fold_config({"experts": ["naive"]}))
    for record in journal.records:
        outputs = fold.apply(record)
        assert not letters(outputs)
    assert fold.counts["labels/learnt"] == count - 1
    assert fold.counts["labels/stamped-before"] == count
    assert fold.label_skew_ms == hour_ms
    taken = fold.snapshot()
    assert restore_fold(taken.state, taken.changed).label_skew_ms == hour_ms


def test_a_cut_is_the_state_of_its_moment_whatever_comes_after() -> None:
    """A snapshot copied every stream before the first was written."""
    journal = Journal()
    for stream in "abcdef":
        for number in range(5):
            journal.features(f"i{number}", {"v": number}, stream=stream)
    fold, _ = fold_all(journal.records)
    expected = fold.digest()
    taken = fold.snapshot_changed({"d": fold.streams["d"].next_offset})
    first = taken.changed["a"]
    fold.apply(journal.features("later", {"v": 1, "w": 2}, stream="b"))
    fold.apply(journal.control(Reset("c")))
    fold.apply(journal.copy("labels", write_erasure(Erasure(hash_text("i1"), "e"))))
    fold.apply(journal.control(Retype("f", "v", FeatureKind.NOMINAL)))
    blobs = {"a": first} | {name: taken.changed[name] for name in "bcef"}
    blobs["d"] = fold.streams["d"].snapshot()
    assert restore_fold(taken.state, blobs).digest() == expected
    assert taken.changed.get("d") is None


def test_the_age_of_a_label_without_features_is_known_and_kept() -> None:
    """A wrong key was seen nowhere until the label was given up."""
    journal = Journal()
    journal.features("a", {"v": 1})
    held = journal.label("elsewhere", 1)
    journal.label("elsewhere too", 1)
    fold, _ = fold_all(journal.records)
    taken = fold.snapshot()
    again = restore_fold(taken.state, taken.changed)
    assert fold.oldest_early_ms == again.oldest_early_ms == held.timestamp_ms
    fold.apply(journal.features("elsewhere", {"v": 1}))
    fold.apply(journal.features("elsewhere too", {"v": 1}))
    assert fold.oldest_early_ms is None


# --- the memory of the past ---------------------------------------------------------


def test_a_late_label_names_the_setting_in_its_dead_letter_and_in_the_counters() -> None:
    fold = Fold(REF, fold_config({"delay": {"expire_steps": 1}}))
    journal = Journal()
    for id in "abc":
        journal.features(id, {"v": 1})
    journal.label("a", 1)
    _, outputs = fold_all(journal.records, fold)
    ((letter, _),) = letters(outputs)
    assert "delay.expire_steps" in letter.detail
    assert fold.counts["labels/late/delay.expire_steps"] == 1


def test_a_correction_of_a_rehearsed_instance_is_taken_and_an_older_one_is_a_dead_letter() -> None:
    fold = Fold(REF, fold_config({"experts": ["naive", "paper"], "graph": {"verified": 1}}))
    journal = Journal()
    for id in "ab":
        journal.features(id, {"v": 1})
        journal.label(id, 1)
    journal.features("c", {"v": 1})
    journal.label("b", 0)
    journal.label("a", 0)
    journal.label("a", 0)
    _, outputs = fold_all(journal.records, fold)
    ((letter, _),) = letters(outputs)
    assert letter.reason == "correction-too-late"
    assert fold.counts["labels/corrected-relabelled"] == 1
    assert fold.counts["labels/correction-too-late"] == 1
    assert fold.counts["refusals/correction-too-late"] == 1


def test_a_correction_that_is_ignored_by_the_settings_is_a_dead_letter_too() -> None:
    fold = Fold(REF, fold_config({"delay": {"corrected": "first"}}))
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.label("a", 1)
    journal.label("a", 0)
    _, outputs = fold_all(journal.records, fold)
    ((letter, _),) = letters(outputs)
    assert (letter.reason, letter.detail[:15]) == ("correction-too-late", "delay.corrected")


def test_the_default_label_of_a_deadline_is_marked_on_the_prediction() -> None:
    fold = Fold(REF, fold_config({"delay": {"expire_ms": 2_500, "expired": 0}}))
    journal = Journal()
    for id in "abcd":
        journal.features(id, {"v": 1})
    _, outputs = fold_all(journal.records, fold)
    marked = [(each["defaulted"], each["default"]) for each in predictions(outputs)]
    assert marked == [([], None), ([], None), ([], None), (["a"], 0)]
    assert fold.counts["labels/defaulted"] == 1


def test_a_prediction_says_which_labels_came_before_it() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.label("a", 1)
    journal.label("a", 1)
    journal.features("b", {"v": 1})
    fold, outputs = fold_all(journal.records)
    assert [each["labels_offset"] for each in predictions(outputs)] == [-1, 1]
    taken = fold.snapshot()
    assert restore_fold(taken.state, taken.changed).labels_offset == 1


def test_a_backfill_does_not_make_other_streams_idle() -> None:
    """Event times of last year, then one live record: four wards were wiped without a word."""
    day_ms = 86_400_000
    fold = Fold(REF, fold_config(stream_idle_ms=30 * day_ms))
    journal = Journal()
    for number in range(4):
        journal.features("a", {"v": 1}, stream=f"ward-{number}", ts=START_MS - 400 * day_ms)
    journal.features("live", {"v": 1}, stream="live", ts=START_MS)
    _, outputs = fold_all(journal.records, fold)
    assert len(fold.streams) == 5
    assert fold.counts["streams/evicted"] == 0
    assert {output.topic for output in outputs} == {"predictions"}


def test_an_idle_stream_is_forgotten_by_the_brokers_clock_and_with_an_event() -> None:
    fold = Fold(REF, fold_config(stream_idle_ms=1_500))
    journal = Journal()
    journal.features("a", {"v": 1}, stream="idle", ts=5)
    for number in range(3):
        journal.features(f"{number}", {"v": 1}, stream="busy", ts=5)
    _, outputs = fold_all(journal.records, fold)
    (event,) = (output for output in outputs if output.topic == "scores")
    assert event.headers == [("dtgol-event", b"stream-evicted")]
    told = orjson.loads(event.value or b"")
    assert (told["stream"], told["at"]["offset"]) == ("idle", 2)
    assert "streams.idle_ms" in told["detail"]
    assert list(fold.streams) == ["busy"]


def test_padding_takes_up_an_offset_and_nothing_else() -> None:
    journal, fold = Journal(), Fold(REF)
    assert fold.apply(journal.control(Padding(1))) == []
    assert (fold.next_offset, fold.counts["records/padding"]) == (1, 1)
    (answer,) = predictions(fold.apply(journal.features("a", {"v": 1})))
    assert answer["at"]["offset"] == 1


def test_a_version_record_of_a_newer_fold_is_refused() -> None:
    journal = Journal()
    journal.control(Version(FOLD_VERSION + 1, 0, "9.9"))
    with pytest.raises(RefusalError, match="start the newer release"):
        fold_all(journal.records)


def test_a_state_of_a_newer_fold_is_refused_and_one_of_an_older_goes_on_under_another_name() -> (
    None
):
    """`FOLD_VERSION` was written and never compared."""
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.control(Version(FOLD_VERSION, 0, "now"))
    fold, _ = fold_all(journal.records)
    assert fold.marked == fold.lineage == Lineage(FOLD_VERSION, 0)
    taken = fold.snapshot()
    newer = taken.state | {"lineage": [FOLD_VERSION + 1, 0]}
    with pytest.raises(RefusalError, match="newer release"):
        restore_fold(newer, taken.changed)
    older = restore_fold(taken.state | {"lineage": [FOLD_VERSION - 1, 0]}, taken.changed)
    assert older.lineage == Lineage(FOLD_VERSION, 2)
    digest = Config().digest()
    assert older.streams["default"].model == f"{FOLD_VERSION}.2-{digest}"
    same = restore_fold(taken.state, taken.changed)
    assert same.streams["default"].model == f"{FOLD_VERSION}-{digest}"


def test_an_erasure_request_leaves_no_trace_in_the_state_and_needs_no_id() -> None:
    journal = Journal()
    journal.features("secret-1", {"v": 1})
    journal.label("secret-2", 1)
    for id in ("secret-1", "secret-2"):
        journal.copy("labels", write_erasure(Erasure(hash_text(id), "default")))
    journal.copy("labels", write_erasure(Erasure(hash_text("secret-1"), "no such stream")))
    fold, outputs = fold_all(journal.records)
    assert not letters(outputs)
    taken = fold.snapshot()
    assert b"secret" not in encode(taken.changed["default"])
    assert b"secret" not in orjson.dumps(taken.state)
    assert b"secret" not in (journal.records[-1].value or b"")
    assert fold.counts["records/erase"] == 3
    assert fold.streams["default"].early_bytes == 0
    journal.features("secret-1", {"v": 1})
    (answer,) = predictions(fold.apply(journal.records[-1]))
    assert answer["repeat"]
