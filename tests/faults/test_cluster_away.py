"""A cluster that does not answer for long: the processes wait, report it, and end in the end."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

from pipeline.kafka.reader import watermarks
from pipeline.sandbox.brokers.local import LocalCluster
from tests.support.stage import Process, Stage
from tests.support.waiting import wait_until

SHORT_TIMEOUTS = {
    "worker.merge_wait_ms": 500,
    "worker.stuck_ms": 2_000,
    "worker.give_up_ms": 8_000,
}


def test_who_gets_no_answer_is_red_and_then_ends(cluster: LocalCluster, tmp_path: Path) -> None:
    prefix = f"away-{uuid.uuid4().hex[:8]}-"
    stage = Stage(cluster.broker, prefix, tmp_path, 1, settings=SHORT_TIMEOUTS)
    with stage.worker() as worker, stage.evaluator() as evaluator:
        for process in (worker, evaluator):
            process.await_ready(1)
        cluster.signal(1, signal.SIGSTOP)
        try:
            for process in (worker, evaluator):
                wait_until(lambda each=process: _reports_it(each), "/readyz to be red", 60)  # type: ignore[misc]
            for process in (worker, evaluator):
                assert process.child.wait(90) == 1
                log = process.log_path.read_text()
                assert "the cluster does not answer for " in log
                assert "Traceback" not in log
        finally:
            cluster.signal(1, signal.SIGCONT)
    stage.features("after", {"v": 1})
    stage.flush()
    # Asked until the broker knows its partitions again.
    assert watermarks(stage.broker.config, stage.topic("predictions"), 0) == (0, 0)
    with stage.worker() as worker:
        worker.await_ready(1)
        stage.await_answers({"after"}, worker)


def _reports_it(process: Process) -> bool:
    """Red with the reason, or ended already: a busy test must not miss the moment."""
    code, body = process.get("/readyz")
    return (code == 503 and "the cluster does not answer" in body) or not process.alive()
