"""The fold: once per source record, every label outcome, bad input, rules as data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from dtgol_core.config import Config
from pipeline.fold import Fold, JournalRecord
from pipeline.rules import Rules
from pipeline.streamstate import Held
from tests.support.journal import PLACE, START_MS, Journal, fold_all, letters, predictions
from topics.codec import read_prediction
from topics.headers import write_headers
from topics.journal import ConfigChange, Kind, Reset, Skip, Source
from topics.refusals import Limits, Rejection


def rules(learner: dict[str, Any] | None = None, **more: Any) -> Rules:
    return replace(Rules(), learner=Config.read(learner or {}), **more)


def change(new: Rules) -> ConfigChange:
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
    source = Source(Kind.COPY, "features", "another-id", 0, 0, -1, START_MS)
    journal.append(b"k", b'{"id":"b","x":{}}', write_headers(source))
    fold, outputs = fold_all(journal.records)
    assert len(predictions(outputs)) == 2
    assert len(fold.marks) == 2


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
    journal.label("a", 1)
    journal.features("a", {"v": 1})
    journal.features("b", {"v": 2})
    fold, outputs = fold_all(journal.records)
    assert fold.counts["labels/early"] == 1
    assert predictions(outputs)[1]["labels_learnt"] == 1
    assert not letters(outputs)
    assert not fold.streams["default"].held


def test_an_early_label_whose_features_never_come_is_a_dead_letter_with_its_bytes() -> None:
    fold = Fold(PLACE, rules({"delay": {"early_steps": 1}}))
    journal = Journal()
    early = journal.copy("labels", b'{"id":"never","y":1}', b"its key", [("trace", b"9")])
    for id in "abc":
        journal.features(id, {"v": 1})
    _, outputs = fold_all(journal.records, fold)
    ((letter, output),) = letters(outputs)
    assert (letter.reason, letter.topic, letter.offset) == ("label-orphan", "labels", 0)
    assert (output.key, output.value) == (early.key, early.value)
    assert output.headers[0] == ("trace", b"9")


def test_more_early_labels_than_allowed_give_up_the_oldest() -> None:
    fold = Fold(PLACE, rules({"delay": {"early_max": 1}}))
    journal = Journal()
    journal.label("first", 1)
    journal.label("second", 1)
    _, outputs = fold_all(journal.records, fold)
    ((letter, _),) = letters(outputs)
    assert (letter.reason, letter.offset) == ("label-orphan", 0)
    assert list(fold.streams["default"].held) == ["second"]


def test_more_bytes_of_early_labels_than_allowed_give_up_the_oldest() -> None:
    journal = Journal()
    for id in ("first", "second", "third"):
        journal.label(id, 1)
    size = Held(0, journal.records[0].key or b"", journal.records[0].value or b"", ()).size
    fold = Fold(PLACE, rules(held_bytes_max=3 * size))
    _, outputs = fold_all(journal.records, fold)
    ((letter, _),) = letters(outputs)
    assert (letter.reason, letter.offset) == ("label-orphan", 0)
    stream = fold.streams["default"]
    assert list(stream.held) == ["second", "third"]
    assert stream.learner.delay.held == 2
    assert stream.held_bytes == sum(label.size for label in stream.held.values()) <= 3 * size
    again = Fold.restore(PLACE, *fold.snapshot())
    assert again.streams["default"].held_bytes == stream.held_bytes
    journal.features("second", {"v": 1})
    fold.apply(journal.records[-1])
    assert stream.held_bytes == stream.held["third"].size


def test_rules_of_before_there_was_a_bound_in_bytes_have_none() -> None:
    mapping = Rules().as_mapping()
    del mapping["held_bytes_max"]
    assert Rules.read(mapping).held_bytes_max is None


def test_without_room_for_early_labels_each_is_a_dead_letter_at_once() -> None:
    fold = Fold(PLACE, rules({"delay": {"early_max": 0}}))
    journal = Journal()
    journal.label("a", 1)
    _, outputs = fold_all(journal.records, fold)
    assert letters(outputs)[0][0].reason == "label-orphan"


def test_a_label_after_its_instance_expired_is_late() -> None:
    fold = Fold(PLACE, rules({"delay": {"expire_steps": 1}}))
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
    assert fold.counts["labels/repeated"] == fold.counts["labels/corrected-ignored"] == 1
    assert len(outputs) == 1


def test_a_corrected_early_label_keeps_the_newer_bytes() -> None:
    fold = Fold(PLACE, rules({"delay": {"corrected": "last", "early_steps": 1}}))
    journal = Journal()
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


def test_another_kind_than_before_is_refused_inside_the_fold() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.features("b", {"v": "text"})
    _, outputs = fold_all(journal.records)
    letter, _ = letters(outputs)[0]
    assert letter.reason == "kind-conflict"
    assert "text" not in letter.detail


def test_more_streams_than_allowed_are_refused() -> None:
    fold = Fold(PLACE, rules(streams_max=1))
    journal = Journal()
    journal.features("a", {"v": 1}, stream="one")
    journal.features("b", {"v": 1}, stream="two")
    journal.label("c", 1, stream="three")
    _, outputs = fold_all(journal.records, fold)
    assert [letter.reason for letter, _ in letters(outputs)] == ["too-many-streams"] * 2


def test_unknown_streams_are_refused_when_streams_are_closed() -> None:
    fold = Fold(PLACE, rules(closed=True, streams={"known": Config()}))
    journal = Journal()
    journal.features("a", {"v": 1}, stream="known")
    journal.features("b", {"v": 1}, stream="other")
    _, outputs = fold_all(journal.records, fold)
    assert letters(outputs)[0][0].reason == "unknown-stream"


def test_an_idle_stream_is_evicted_by_the_clock_of_its_partition() -> None:
    fold = Fold(PLACE, rules(stream_idle_ms=1_000))
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
    fold = Fold(PLACE, rules(ts_ahead_max_ms=10))
    journal = Journal()
    record = journal.features("a", {"v": 1}, ts=START_MS * 2)
    _, outputs = fold_all(journal.records, fold)
    assert fold.clock_ms == record.timestamp_ms + 10
    assert predictions(outputs)[0]["ts"] == START_MS * 2


def test_a_stub_only_moves_the_mark() -> None:
    journal = Journal()
    journal.copy("features", None, kind=Kind.STUB)
    journal.features("a", {"v": 1})
    fold, outputs = fold_all(journal.records)
    assert len(outputs) == 1
    assert fold.counts["records/stub"] == 1


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
    fold, outputs = fold_all(journal.records, Fold(PLACE, skips=frozenset([1])))
    assert [prediction["id"] for prediction in predictions(outputs)] == ["a"]
    assert fold.counts["records/skipped"] == 1


def test_other_rules_hold_from_their_record_on() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    new = rules({"tracks": {"rate": 0.3}}, why=2)
    journal.control(change(new))
    journal.label("a", 1)
    journal.features("b", {"v": 1})
    fold, outputs = fold_all(journal.records)
    before, after = predictions(outputs)
    assert before["model"] != after["model"]
    assert (before["why"], len(after["why"])) == ([], 1)
    assert fold.rules_digest == new.digest()
    assert after["labels_learnt"] == 1


def test_what_shapes_the_state_waits_for_a_reset() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    new = rules({"copula": {"window": 50}})
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
    assert fold.rules == Rules()


def test_rules_survive_the_journal() -> None:
    described = Config.read({"features": {"ward": {"kind": "nominal", "levels": ["A"]}}})
    new = rules(
        {"delay": {"expire_ms": 5}}, streams={"s": described}, closed=True, limits=Limits(1000)
    )
    raw = orjson.loads(orjson.dumps(new.as_mapping()))
    assert Rules.read(raw) == new
    assert Rules.read(raw).digest() == new.digest()


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


def test_a_record_is_a_plain_value() -> None:
    assert JournalRecord(1, 2, None, None, []) == JournalRecord(1, 2, None, None, [])
