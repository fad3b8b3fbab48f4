"""Commands that may take long: they show how far they are, and Ctrl-C ends them cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.cli import dtgol
from pipeline.sandbox.brokers import Broker
from tests.broker.test_operator_commands import as_json, send, settled
from tests.support.forkserver import Command
from tests.support.stage import Stage
from tests.support.waiting import wait_until

BAD = 3


def interrupted(stage: Stage, point: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that gets SIGINT when it is about to do its work for the second time."""
    folder = stage.folder / point
    folder.mkdir()
    environ = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": stage.broker.bootstrap,
        "DTGOL_KAFKA_PREFIX": stage.prefix,
    }
    paused = ("tests.support.pause_points", point, "2", str(folder))
    command = Command(*paused, *arguments, environ=environ)
    wait_until((folder / "reached").exists, f"{point} to be reached", 60)
    command.child.send_signal(signal.SIGINT)
    return command.finish()


def test_ctrl_c_ends_long_commands_with_a_sentence_and_they_go_on(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=2)
    with stage.worker() as worker:
        worker.await_ready(2)
        for number in range(BAD):
            stage.send("features", b"{oops" + b" " * number, b"key", partition=0)
        for partition in range(2):
            stage.send("labels", b"{oops", b"key", partition=partition)
        stage.await_answers(send(stage, 0, 20), worker)
        wait_until(lambda: len(stage.letters()) == BAD + 2, "letters", 60, worker.alive)
        settled(stage, worker)
    files, table = str(tmp_path / "files"), tmp_path / "rows.csv"
    table.write_text("a,label\n" + "1,0\n2,1\n" * 10)
    archive, redrive = ("journal", "archive", "--to", files), ("dead-letters", "redrive")
    replay, produce = ("journal", "replay"), ("produce", str(table))
    ended = {
        "the files that are written stay": interrupted(stage, "archive", *archive),
        "nothing was changed": interrupted(stage, "fold", *replay),
        "what was sent back has its marker": interrupted(stage, "redrive", *redrive),
        "rows that were sent count as repeats": interrupted(stage, "produce", *produce),
    }
    for sentence, done in ended.items():
        assert done.returncode == 130, (sentence, done.stderr)
        last = done.stderr.splitlines()[-1]
        assert last.startswith("stopped; ")
        assert sentence in last
        for surprise in ("Traceback", "Aborted", "Exception ignored"):
            assert surprise not in done.stderr, done.stderr
    assert sum(as_json(stage, *archive)["records"].values()) > 0
    assert len(list(Path(files).glob("*.jsonl.gz"))) == 2
    assert not list(Path(files).glob("*.part"))
    assert as_json(stage, *replay)["equal"] is True
    # The transaction that was open is taken back at once: nothing of it was sent.
    assert as_json(stage, *redrive)["sent"] == BAD + 2
    assert as_json(stage, *produce)["features"] == 20


def test_long_commands_show_how_far_they_are(
    real_broker: Broker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for every step here; five seconds apart for people."""
    monkeypatch.setattr("pipeline.cli.progress.LINE_SECONDS", 0.0)
    stage = Stage(real_broker, prefix, tmp_path, partitions=2)
    for name in ("journal", "dead-letters", "predictions"):
        for _ in range(3):
            stage.send(name, b"{}", b"key", partition=0)
    stage.flush()
    stored = ["--set=snapshots.store=directory", f"--set=snapshots.directory={tmp_path / 's'}"]
    where = ["--bootstrap", real_broker.bootstrap, "--prefix", prefix]

    def shown(*command: str) -> list[str]:
        done = CliRunner().invoke(dtgol, [*command, *where])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output
        return done.stderr.splitlines()

    archived = shown("journal", "archive", "--to", str(tmp_path / "files"))
    assert archived[-1].startswith("3 of 3 records of partition 0, ")
    assert shown("dead-letters", "list")[-1].startswith("3 of 3 records, ")
    assert shown("watch", "--once")[-1].startswith("6 of 6 records, ")
    erased = shown("erase", "--id", "7", "--dry-run")
    assert erased[-1].startswith("9 of 9 records, ")
    for command in ("list", "inspect"):
        lines = shown("snapshot", command, *stored)
        assert any(line.startswith("2 of 2 partitions, ") for line in lines), lines
    seen = shown("doctor", *stored)
    assert {
        "asking the cluster …",
        "reading the newest records …",
        "looking for parked records, partition 2 of 2 …",
        "reading the newest snapshot, partition 2 of 2 …",
        "looking how far back predictions can be computed again …",
        f"counting what {prefix}dtgol-worker has not read …",
    } <= set(seen)
