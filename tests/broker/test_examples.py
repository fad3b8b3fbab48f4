"""The blocks of the documentation that need a broker, run as they stand on a real one.

`tests/examples/blocks.py` says how a page marks them. The address of the broker, the number of
copies, and for Python the prefix are exchanged. `dtgol` is a shell function that ends what never
ends, and takes `doctor`'s verdict *problems* for an answer.
"""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.sandbox.brokers import Broker
from tests.examples.blocks import ROOT, Block, blocks, pages

LIMIT_S = 600.0
FUNCTION = """
set -e
dtgol() {
  case "$1" in
    worker|evaluator) exec "$DTGOL" "$@" ;;
    watch|predictions) timeout --preserve-status -s INT 20 "$DTGOL" "$@" || [ $? = 130 ] ;;
    doctor) "$DTGOL" "$@" || [ $? = 1 ] ;;
    *) "$DTGOL" "$@" ;;
  esac
}
"""
RUNNING = """
dtgol topics apply --partitions 12 --replication 1
dtgol worker > worker.log 2>&1 &
dtgol produce records.csv --stream ward-3 --delay 20 --limit 60 --no-wait
until [ "$(dtgol predictions --all --once --json | wc -l)" -ge 60 ]; do kill -0 %1; done
kill %1 && wait   # its last snapshot is kept
dtgol worker > worker.log 2>&1 &
"""
"""What an operator has who reads a page that starts nothing itself."""
STARTS_ITSELF = ("README.md", "docs/tutorial.md")


def as_script(block: Block, servers: str, prefix: str) -> str:
    """The block as shell, with what is of this test alone."""
    text = block.text.replace("--replication 3", "--replication 1")
    for address in ("broker-1:9092,broker-2:9092", "broker-1:9092", "localhost:9092"):
        text = text.replace(address, servers)
    if block.language == "python":
        text = text.replace("(kafka", f"(kafka, prefix={prefix!r}")
        text = text.replace('group="', f'group="{prefix}')
        text = f"python - <<'the end of the block'\n{text}the end of the block\n"
    return f"echo '── {block.where}' >&2\n{text}"


def write_records(folder: Path) -> None:
    """records.csv and records.jsonl, as the pages name them: the first patients, no time."""
    with (ROOT / "docs" / "patients.csv").open() as file:
        rows = list(csv.DictReader(file))[:80]
    patients = [row.pop("id") for row in rows]
    kept = [name for name in rows[0] if name != "time"]
    with (folder / "records.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, kept, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    with (folder / "records.jsonl").open("w") as file:
        for patient, row in zip(patients, rows, strict=True):
            record = {"patient": patient, "pulse": float(row["pulse"] or 80)}
            file.write(json.dumps(record | {"label": int(row["label"])}) + "\n")


@pytest.mark.parametrize(
    "page", [p for p in pages() if any(each.fate == "broker" for each in blocks(p))]
)
def test_the_blocks_of_a_page_run_in_order(
    page: str, real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    servers = str(real_broker.config["bootstrap.servers"])
    found = [each for each in blocks(page) if each.fate == "broker"]
    script = FUNCTION + ("" if page in STARTS_ITSELF else RUNNING)
    script += "".join(as_script(each, servers, prefix) for each in found)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    write_records(tmp_path)
    bin_path = Path(sys.prefix) / "bin"
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("DTGOL_", "KAFKA_"))},
        "PATH": f"{bin_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "DTGOL": str(bin_path / "dtgol"),
        "DTGOL_KAFKA_PREFIX": prefix,
        "DTGOL_WEB_PORT": "0",
        "KAFKA_BOOTSTRAP_SERVERS": servers,
    }
    log = tmp_path / "output"
    with log.open("wb") as output:
        child = subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = child.wait(LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    assert code == 0, log.read_text()
