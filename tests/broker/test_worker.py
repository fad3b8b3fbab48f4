"""The whole path: features and labels in; predictions, scores and dead letters out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from pipeline.offline.backtest import run_backtest
from pipeline.offline.files.records import Mask, read_records
from pipeline.sandbox.brokers import Broker
from tests.broker.test_commands import dtgol
from tests.support.forkserver import run
from tests.support.latin_header import Latin, send_batch
from tests.support.stage import Process, Stage
from tests.support.waiting import wait_until

POLICY = """
[streams]
closed = true
[streams.ward.delay]
expire_steps = 20
early_max = 2
early_steps = 12
[streams.ward.columns]
strict = true
[streams.lab]
"""
TELLTALE_TEXT, TELLTALE_NUMBER = "diagnosis-nobody-may-read", 0.7182818
BIG = b'{"id":"big","x":{"v":"' + b"z" * 300_000 + b'"}}'

BAD: list[tuple[str, bytes | None, bytes | None, str]] = [
    ("features", b"key", b"{oops", "not-json"),
    ("features", b"key", b'{"stream":"ward","id":"nan","x":{"v":NaN}}', "not-json"),
    ("features", b"key", b"[1]", "not-an-object"),
    ("features", b"key", b'{"stream":"ward","x":{"v":1}}', "missing-id"),
    ("features", b"key", b'{"stream":"ward","id":"' + b"i" * 257 + b'","x":{}}', "id-too-long"),
    ("features", b"key", b'{"stream":"ward","id":"t","x":7}', "wrong-type"),
    ("features", b"key", b'{"stream":"ward","id":"n","x":{"v":{"w":1}}}', "nested-value"),
    ("features", b"key", b'{"stream":"ward","id":"k","x":{"v":"text"}}', "kind-conflict"),
    ("features", b"key", b'{"stream":"nobody","id":"u","x":{"v":1}}', "unknown-stream"),
    ("features", b"key", b"", "empty-value"),
    ("features", b"key", None, "empty-value"),
    ("features", None, b'{"stream":"ward","id":"nokey","x":{"v":1}}', "null-key"),
    (
        "features",
        b"key",
        b'{"stream":"ward","id":"m","x":{' + b",".join(b'"f%d":1' % n for n in range(513)) + b"}}",
        "too-many-features",
    ),
    ("labels", b"key", b'{"stream":"ward","id":"y","y":2}', "label-not-binary"),
    ("features", b"key", BIG, "too-large"),
]


@dataclass
class Played:
    """What a worker and an evaluator made of one script of records."""

    stage: Stage
    predictions: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    letters: list[Any]
    metrics: str
    status: dict[str, Any]
    evaluator: dict[str, Any]


@pytest.fixture(scope="module")
def played(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Worker and evaluator over the script; each test below looks at one thing of it."""
    prefix = f"test-{uuid4().hex[:10]}-"
    stage = Stage(broker, prefix, tmp_path_factory.mktemp("played"), config=POLICY)
    with stage.worker() as worker:
        worker.await_ready(stage.partitions)
        with stage.evaluator() as evaluator:
            evaluator.await_ready(stage.partitions)
            _play(stage, worker)
            stage.await_answers({f"a{n}" for n in range(60)} | {"last"}, worker)
            wait_until(lambda: len(stage.letters()) >= len(BAD) + 3, "letters", 60, worker.alive)
            wait_until(lambda: _scored(stage) >= {"a0", "late", "early"}, "scores", 60)
            yield Played(
                stage,
                stage.predictions(),
                stage.scores(),
                stage.letters(),
                worker.get("/metrics")[1],
                worker.status(),
                evaluator.status(),
            )


def _scored(stage: Stage) -> set[str]:
    return {score["id"] for score in stage.scores()}


def _play(stage: Stage, worker: Process) -> None:
    """Every row of the label policy, every kind of bad input, in a stream of good records."""
    ward = {"stream": "ward"}
    chance = np.random.default_rng(5)

    def good(number: int) -> None:
        x = {"v": float(chance.normal()), "w": "AB"[number % 2]}
        stage.features(f"a{number}", x, ts=1_700_000_000_000 + number, **ward)
        stage.flush()

    stage.features("late", {"v": 0.1}, **ward)
    stage.flush()
    stage.await_answers({"late"}, worker)  # no label opens a stream
    stage.label("early", 1, **ward)
    stage.label("orphan", 1, **ward)
    stage.flush()
    stage.features("early", {"v": TELLTALE_NUMBER, "w": TELLTALE_TEXT}, **ward)
    stage.flush()
    for number in range(60):
        good(number)
        if number >= 3 and number % 2:
            stage.label(f"a{number - 3}", number // 2 % 2, ts=1_700_000_001_000, **ward)
    stage.flush()
    # Live, nobody knows which of two topics is read first: wait where the order matters.
    wait_until(lambda: _heard(worker.status()) == 29 + 2, "labels", 60, worker.alive)
    wait_until(lambda: _scored(stage) >= {"a2"}, "a first score", 60)
    stage.label("late", 1, **ward)
    stage.label("a0", 1, **ward)  # was 1: repeated
    stage.label("a2", 1, **ward)  # was 0: corrected
    for name in ("x", "y", "z"):  # one more than may be held
        stage.label(f"never-{name}", 1, **ward)
    stage.flush()
    for topic, key, value, _ in BAD:
        stage.send(topic, value, key, headers=[("trace", b"7")])
    stage.features("a5", {"v": 0.3, "w": "A"}, **ward)  # an id that was answered before
    stage.flush()
    stage.send(
        "features",
        b'{"stream":"lab","id":"last","x":{"v":1},"colour":"blue"}',
        b"key",
        [("trace", b"42")],
    )
    stage.flush()


def test_every_record_is_answered_with_its_identity_and_its_headers(played: Played) -> None:
    answered = [each["id"] for each in played.predictions if not each["repeat"]]
    assert len(answered) == len(set(answered)) == 63
    (last,) = (each for each in played.predictions if each["id"] == "last")
    assert (last["stream"], last["step"]) == ("lab", 1)
    (record,) = (r for r in played.stage.read("predictions") if b'"last"' in (r.value or b""))
    assert record.headers == [("trace", b"42")]
    assert record.key == b"key"


def test_every_prediction_has_the_bytes_that_the_journal_gives(played: Played) -> None:
    played.stage.verify()


def test_labels_on_time_and_early_ones_are_learnt(played: Played) -> None:
    learnt = max(each["labels_learnt"] for each in played.predictions if each["stream"] == "ward")
    assert learnt == 29 + 1
    assert _heard(played.status) == 29 + 5
    assert _count(played, "labels", "early") >= 5


def test_a_label_whose_features_never_come_is_an_orphan(played: Played) -> None:
    orphans = [record.value for letter, record in played.letters if letter.reason == "label-orphan"]
    assert b'{"id":"orphan","y":1,"stream":"ward"}' in orphans
    assert b'{"id":"never-x","y":1,"stream":"ward"}' in orphans
    assert _count(played, "refusals", "label-orphan") == len(orphans)


def test_a_late_label_is_a_dead_letter_and_still_scored(played: Played) -> None:
    ((letter, record),) = (each for each in played.letters if each[0].reason == "label-late")
    assert record.value == b'{"id":"late","y":1,"stream":"ward"}'
    assert letter.topic == played.stage.topic("labels")
    assert "late" in {score["id"] for score in played.scores}


def test_a_repeated_label_is_counted_and_a_corrected_one_scored_again(played: Played) -> None:
    assert _count(played, "labels", "repeated") == 1
    assert _count(played, "labels", "corrected-relabelled") == 1
    scores = [score for score in played.scores if score["id"] == "a2"]
    assert [(score["y"], score["rescored"]) for score in scores] == [(0, False), (1, True)]
    assert len([score for score in played.scores if score["id"] == "a0"]) == 1


def test_an_instance_without_a_label_expires(played: Played) -> None:
    assert _count(played, "instances", "expired") > 10


def test_a_repeated_id_is_answered_again_and_not_scored_again(played: Played) -> None:
    assert sum(each["repeat"] for each in played.predictions) == 1


@pytest.mark.parametrize(
    "place", range(len(BAD)), ids=[f"{n}-{bad[3]}" for n, bad in enumerate(BAD)]
)
def test_bad_input_is_a_dead_letter_with_its_bytes_and_its_reason(
    played: Played, place: int
) -> None:
    topic, key, value, reason = BAD[place]
    found = [
        (letter, record)
        for letter, record in played.letters
        if letter.reason == reason and letter.topic == played.stage.topic(topic)
    ]
    values = [record.value for _, record in found]
    if reason == "too-large":
        ((letter, record),) = found
        assert letter.length == len(BIG)
        assert letter.sha256 == hashlib.sha256(BIG).hexdigest()
        assert record.value
        assert BIG.startswith(record.value)
    else:
        assert value in values
        (record,) = (each for _, each in found if each.value == value and each.key == key)
    assert record.headers[0] == ("trace", b"7")
    assert record.key == key


def test_an_oversized_record_leaves_a_stub(played: Played) -> None:
    stubs = [
        record
        for record in played.stage.read("journal")
        if ("dtgol-kind", b"stub") in record.headers
    ]
    assert [(stub.key, stub.value) for stub in stubs] == [(None, None)]


def test_the_pages_show_what_is_going_on_and_no_values(played: Played) -> None:
    assert re.search(r'dtgol_fold_features_total{[^}]*outcome="answered"', played.metrics)
    assert played.status["unready"] == []
    assert played.evaluator["unready"] == []
    assert "dtgol_worker_ready 1.0" in played.metrics
    assert _count(played, "records", "unknown-fields") == 1
    logs = [path.read_text() for path in played.stage.folder.glob("*.log")]
    assert len(logs) == 2
    for text in (played.metrics, str(played.status), str(played.evaluator), *logs):
        for value in ("blue", TELLTALE_TEXT, str(TELLTALE_NUMBER)):
            assert value not in text


def test_the_evaluator_counts_what_was_scored(played: Played) -> None:
    streams: dict[str, int] = {}
    for partition in played.evaluator["partitions"].values():
        for name, about in partition["streams"].items():
            streams[name] = streams.get(name, 0) + about["scored"]
    once = {score["id"] for score in played.scores}
    assert streams["ward"] == len(once) == 31


def _count(played: Played, what: str, outcome: str) -> int:
    return _counted(played.status, f"{what}/{outcome}")


def _heard(status: dict[str, Any]) -> int:
    """Labels taken in for the first time; live, one may overtake its features by a moment."""
    return _counted(status, "labels/queued", "labels/early")


def _counted(status: dict[str, Any], *names: str) -> int:
    counts = [each.get("counts", {}) for each in status["partitions"].values()]
    return sum(each.get(name, 0) for each in counts for name in names)


def csv_file(folder: Path, rows: int, seed: int = 3) -> Path:
    """A file of mixed columns, some cells empty, whose label can be learnt."""
    chance = np.random.default_rng(seed)
    lines = ["a,b,c,ward,label"]
    for _ in range(rows):
        a, b = chance.normal(size=2)
        cells = [f"{a:.6f}", str(chance.integers(5)), f"{b:.4f}", "XYZ"[chance.integers(3)]]
        for place in range(4):
            if chance.random() < 0.2:
                cells[place] = ""
        lines.append(",".join([*cells, str(int(a + 0.5 * b > 0))]))
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("outage", [False, True], ids=["undisturbed", "worker killed midway"])
def test_a_file_through_kafka_equals_its_backtest_to_the_last_bit(
    broker: Broker, prefix: str, tmp_path: Path, outage: bool
) -> None:
    delay = 20
    config = {"delay": {"release": "step", "steps": delay}}
    rows = list(read_records(csv_file(tmp_path, 300), mask=Mask(), seed=0))
    expected = run_backtest(rows, Learner(Config.read(config)), delay)
    toml = f'[learner.delay]\nrelease = "step"\nsteps = {delay}\n'
    stage = Stage(broker, prefix, tmp_path, config=toml)

    def send(part: list[Any], worker: Process | None) -> None:
        """Labels first: they must be in the journal before they are due."""
        for row in part:
            stage.label(str(row.number), row.label)
        stage.flush()
        if worker is not None:
            there = part[-1].number + 1
            wait_until(lambda: _heard(worker.status()) == there, "labels", 60)
        for row in part:
            if row.number:
                stage.features(str(row.number), row.record)
        stage.flush()

    with stage.worker() as worker:
        worker.await_ready(stage.partitions)
        stage.features("0", rows[0].record)  # no label opens a stream
        stage.flush()
        stage.await_answers({"0"}, worker)
        send(rows[:150], worker)
        stage.await_answers({str(n) for n in range(100)}, worker)
        if outage:
            worker.child.kill()
            worker.child.wait()
        else:
            send(rows[150:], worker)
            stage.await_answers({str(n) for n in range(300)}, worker)
    if outage:
        send(rows[150:], None)  # nobody reads now: the merge by timestamp must see to the order
        with stage.worker() as worker:
            stage.await_answers({str(n) for n in range(300)}, worker)
    published = {prediction["id"]: prediction for prediction in stage.predictions()}
    for prediction in expected.predictions:
        found = published[str(prediction.row)]
        assert (found["step"], found["p"], found["naive"]) == (
            prediction.step,
            prediction.p,
            prediction.naive,
        )
    stage.verify()


def test_a_backlog_is_merged_by_its_timestamps_although_sides_are_paused(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    """Faust drops the rest of a batch whose partition is paused (docs/decisions/0004): not here."""
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    count, behind = 2_000, 20
    start = int(time.time() * 1000) - 3_600_000  # not older: retention deletes it before it is read
    for number in range(count):
        value = b'{"id":"%d","x":{"v":%d}}' % (number, number % 7)
        stage.send("features", value, timestamp_ms=start + 2 * number)
        if number >= behind:
            value = b'{"id":"%d","y":%d}' % (number - behind, number % 2)
            stage.send("labels", value, timestamp_ms=start + 2 * number + 1)
    stage.flush()
    with stage.worker("--set=worker.merge_buffer_records=10") as worker:
        stage.await_answers({str(number) for number in range(count)}, worker)
        wait_until(lambda: _heard(worker.status()) == count - behind, "labels", 60, worker.alive)
    (fold,) = stage.verify()
    assert fold.counts["labels/queued"] == count - behind
    copied: list[Any] = [dict(record.headers) for record in stage.read("journal")]
    times = [int(each["dtgol-timestamp-ms"]) for each in copied if each["dtgol-kind"] == b"copy"]
    assert times == sorted(times)
    assert len(times) == 2 * count - behind


def test_two_workers_share_one_leaves_one_joins_and_nothing_is_lost(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=4)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for number in range(sent, sent + count):
            key = f"machine-{number % 11}"
            stage.features(number, {"v": number % 17, "w": number * 0.37 % 1}, key, stream=key)
            if number >= 30:
                old = number - 30
                stage.label(old, old % 2, f"machine-{old % 11}", stream=f"machine-{old % 11}")
        sent += count
        stage.flush()

    with stage.worker() as first:
        first.await_ready(4)
        send(300)
        with stage.worker() as second:
            second.await_ready(2)
            first.await_ready(2)
            send(300)
            stage.await_answers({str(n) for n in range(450)}, second)
            send(200)
        first.await_ready(4)
        send(200)
        with stage.worker() as third:
            third.await_ready(2)
            send(200)
            first.child.terminate()
            assert first.child.wait(60) == 0
            third.await_ready(4)
            send(100)
            stage.await_answers({str(n) for n in range(sent)}, third)
            wait_until(
                lambda: _heard(third.status()) == sent - 30,
                "all labels",
                60,
                third.alive,
            )
    folds = stage.verify()
    assert sum(fold.counts["features/answered"] for fold in folds) == sent
    assert sum(fold.counts["labels/repeated"] for fold in folds) == 0


def test_an_aborted_transaction_is_never_learnt(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path)
    producer = Producer({**real_broker.config, "transactional.id": prefix})
    producer.init_transactions(30)

    def transaction(ids: range, commit: bool) -> None:
        producer.begin_transaction()
        for number in ids:
            value = b'{"id":"%d","x":{"v":%d}}' % (number, number)
            producer.produce(stage.topic("features"), value, b"key")
            label = b'{"id":"%d","y":%d}' % (number, number % 2)
            producer.produce(stage.topic("labels"), label, b"key")
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)

    with stage.worker() as worker:
        worker.await_ready(stage.partitions)
        transaction(range(5), True)
        transaction(range(5, 10), False)
        transaction(range(10, 15), True)
        kept = {str(n) for n in (*range(5), *range(10, 15))}
        stage.await_answers(kept, worker)
        wait_until(lambda: _heard(worker.status()) == len(kept), "labels", 60, worker.alive)
    assert {each["id"] for each in stage.predictions()} == kept
    folds = stage.verify()
    assert sum(fold.counts["records/copy"] for fold in folds) == 20


def refused(stage: Stage, *more: str) -> str:
    """Start a worker that must not start; what it writes to stderr."""
    done = run("pipeline", *stage.command("worker", None, *more))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_worker_does_not_start_without_its_topics(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path)
    missing = [stage.topic("labels")]
    admin = AdminClient(real_broker.config)
    for done in admin.delete_topics(missing).values():
        done.result(30)
    assert "run dtgol topics apply first" in refused(stage)


def test_a_worker_does_not_start_over_a_gap_unless_told_to(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    for number in range(10):
        stage.features(number, {"v": number})
    stage.flush()
    with stage.worker() as worker:
        stage.await_answers({str(n) for n in range(10)}, worker)
        wait_until(lambda: worker.status()["partitions"]["0"]["snapshot_offset"] >= 11, "snapshot")
    for number in range(10, 20):
        stage.features(number, {"v": number})
    stage.flush()
    admin = AdminClient(real_broker.config)
    cut = TopicPartition(stage.topic("features"), 0, 15)
    for done in admin.delete_records([cut]).values():
        done.result(30)
    assert "records 10 to 14 are gone" in refused(stage)
    with stage.worker("--accept-gap") as worker:
        stage.await_answers({str(n) for n in range(15, 20)}, worker)
        assert "records 10 to 14 are gone" in worker.log_path.read_text()


def test_headers_that_nobody_should_send(real_broker: Broker, prefix: str, tmp_path: Path) -> None:
    """Names of ours are left behind; a name that is not UTF-8 is a dead letter.

    Seen: such a name ended worker and evaluator at every start. A record with as many headers as
    may be was a dead letter while the worker ran, and answered by its restore.
    """
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    mine = [("dtgol-length", b"abc"), ("dtgol-kind", b"config"), ("dtgol-redriven", b"\xff")]
    features, labels = stage.topic("features"), stage.topic("labels")
    latin = [("a", b"1"), (Latin("größe"), b"1")]
    asyncio.run(
        send_batch(
            real_broker.bootstrap,
            features,
            [
                (b"key", b'{"id":"0","x":{"v":1}}', mine),
                (b"key", b'{"id":"1","x":{"v":2}}', latin),
                (b"key", b'{"id":"2","x":{"v":3}}', [("many", b"")] * 1_000),
            ],
        )
    )
    with stage.worker() as worker, stage.evaluator() as evaluator:
        stage.await_answers({"0", "2"}, worker)
        bad = (b"key", b'{"id":"0","y":1}', latin)
        good = (b"key", b'{"id":"0","y":0}', [("a", b"1")])
        asyncio.run(send_batch(real_broker.bootstrap, labels, [bad, good]))
        wait_until(lambda: len(stage.scores()) >= 1, "a score", 60, evaluator.alive)
        wait_until(lambda: len(stage.letters()) == 2, "two dead letters", 60, worker.alive)
        counts = evaluator.status()["partitions"]["0"]["counts"]
        assert counts["labels/refused"] == 1
    assert [score["y"] for score in stage.scores()] == [0]
    for letter, record in stage.letters():
        assert (letter.reason, record.key) == ("header-name", b"key")
        assert letter.detail == "record: a header's name is not UTF-8"
    with stage.worker() as worker:
        stage.features("3", {"v": 3})
        stage.flush()
        stage.await_answers({"3"}, worker)
        worker.await_ready(1)
    (fold,) = stage.verify()
    assert (fold.counts["records/stub"], fold.counts["refusals/header-name"]) == (2, 2)
    assert fold.counts["features/answered"] == 3
    sent = dtgol(real_broker, prefix, "dead-letters", "redrive", "--reason=header-name", "--json")
    assert json.loads(sent.stdout)["sent"] == 2, sent.stderr
    with stage.worker() as worker:
        stage.await_answers({"0", "1", "2", "3"}, worker)


def test_other_settings_hold_from_a_record_in_the_journal_on(
    broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(broker, prefix, tmp_path)
    stage.features("before", {"v": 1})
    stage.flush()
    with stage.worker() as worker:
        stage.await_answers({"before"}, worker)
    stage.features("after", {"v": 2})
    stage.flush()
    with stage.worker(config="[learner.tracks]\nrate = 0.3\n") as worker:
        stage.await_answers({"after"}, worker)
    before, after = (
        each["model"] for each in stage.predictions() if each["id"] in ("before", "after")
    )
    assert before != after
    assert sorted(each["step"] for each in stage.predictions()) == [1, 2]
    stage.verify()
    if broker.kind == "embedded":
        return
    (stage.folder / "dtgol.toml").write_text("[learner.copula]\nwindow = 50\n")
    with stage.worker() as worker:
        assert worker.child.wait(60) == 2
        assert "--reset-changed" in worker.log_path.read_text()
    with stage.worker("--reset-changed") as worker:
        worker.await_ready(stage.partitions)
        stage.features("anew", {"v": 3})
        stage.flush()
        stage.await_answers({"anew"}, worker)
    (anew,) = (each for each in stage.predictions() if each["id"] == "anew")
    assert anew["step"] == 1
    stage.verify()


def test_the_pages_need_the_token_where_one_is_set(
    broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(broker, prefix, tmp_path)
    (tmp_path / "token").write_text("open-sesame\n")
    with stage.worker(f"--set=web.token_file={tmp_path / 'token'}") as worker:
        wait_until(lambda: worker.get("/livez")[0] == 200, "alive", 60, worker.alive)
        assert worker.get("/status")[0] == 401
        assert worker.get("/status", "wrong")[0] == 401
        assert worker.get("/status", "open-sesame")[0] == 200
    assert "open-sesame" not in worker.log_path.read_text()
