"""The README's Python example is run as it stands."""

import re
from pathlib import Path

from pipeline.sandbox.brokers import Broker
from tests.support.commands import python
from tests.support.stage import Stage

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_example_prints_a_prediction(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    """Seen: it hung for ever, because a new group began behind its own prediction."""
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    servers = real_broker.config["bootstrap.servers"]
    assert "broker-1:9092" in example
    script = tmp_path / "example.py"
    # Only what is of this test: its broker, and topics and a group of its own.
    script.write_text(
        example.replace("broker-1:9092", str(servers))
        .replace("(kafka", f"(kafka, prefix={prefix!r}")
        .replace('group="', f'group="{prefix}')
    )
    stage = Stage(real_broker, prefix, tmp_path, partitions=3)
    with stage.worker() as worker:
        worker.await_ready(3)
        done = python(str(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "patient-17/day-3 0.5\n"
