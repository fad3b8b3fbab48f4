"""`dtgol demo` as a user runs it: it answers every record, ends by itself and leaves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import wait_until

LIMIT_S = 240.0
STOP_S = 60.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pipeline", "demo", *arguments]


def surroundings(folder: Path) -> dict[str, str]:
    """Settings of somebody else must not leak into the demo; its files go where we can look."""
    return {
        **os.environ,
        "TMPDIR": str(folder),
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "DTGOL_KAFKA_PREFIX": "not-ours-",
    }


def processes_that_name(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


def test_a_short_story_is_answered_to_the_last_record(tmp_path: Path) -> None:
    done = subprocess.run(
        command("sensors", "--records", "90", "--seconds", "6"),
        env=surroundings(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sensors: 90 records, 90 predictions, 90 of 90 labels joined" in done.stdout
    assert "inside the blind zone" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert processes_that_name(str(tmp_path)) == []


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    log_path = tmp_path / "log"
    home = tmp_path / "home"
    home.mkdir()
    with log_path.open("wb") as log:
        child = subprocess.Popen(
            command("patients", "--records", "200", "--seconds", "60"),
            env=surroundings(home),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: "starting the worker" in log_path.read_text(),
            "the worker to be started",
            LIMIT_S,
            alive=lambda: child.poll() is None,
        )
        child.send_signal(signal.SIGINT)
        assert child.wait(STOP_S) == 130, log_path.read_text()
    finally:
        child.kill()
        child.wait()
    assert list(home.iterdir()) == []
    wait_until(lambda: not processes_that_name(str(home)), "the processes to be gone", STOP_S)
