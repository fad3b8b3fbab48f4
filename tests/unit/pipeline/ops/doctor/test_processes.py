"""What running processes say of themselves, asked over HTTP."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from pipeline.ops.doctor.findings import Finding, Status
from pipeline.ops.doctor.processes import check_process, judge_bounds

BOUNDS = """# TYPE dtgol_bound_used_ratio gauge
dtgol_bound_used_ratio{bound="evaluator.labels_max",partition="0"} 0.5
dtgol_bound_used_ratio{bound="evaluator.labels_max",partition="3"} 0.97
dtgol_bound_used_ratio{bound="evaluator.boards_max",partition="0"} 0.25
# TYPE dtgol_evaluator_ready gauge
dtgol_evaluator_ready 1
"""
Answers = Mapping[str, tuple[int, str]]


@contextmanager
def served(answers: Answers, token: str | None = None) -> Iterator[str]:
    """A process that answers like this, and only to whoever has the token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = answers[self.path]
            if token is not None and self.headers["Authorization"] != f"Bearer {token}":
                code, text = 401, ""
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def checked(answers: Answers, wants: str | None = None, has: str | None = None) -> list[Finding]:
    with served(answers, wants) as address:
        return list(check_process(address, has))


def test_a_bound_of_an_evaluator_that_is_near_is_a_problem() -> None:
    ready, bound = checked({"/readyz": (200, "ready\n"), "/metrics": (200, BOUNDS)})
    assert (ready.status, bound.status) == (Status.OK, Status.PROBLEM)
    assert bound.text == "97% of evaluator.labels_max is in use (partition 3)"
    assert bound.advice.startswith("raise evaluator.labels_max")


def test_a_bound_at_which_the_oldest_goes_is_worth_knowing() -> None:
    (found,) = judge_bounds(
        "here", BOUNDS.replace("evaluator.labels_max", "delay.pending_bytes_max")
    )
    assert (found.status, found.text[:30]) == (Status.NOTE, "97% of delay.pending_bytes_max")


def test_bounds_that_are_far_are_listed() -> None:
    (found,) = judge_bounds("here", BOUNDS.replace("0.97", "0.2"))
    assert (found.status, found.check) == (Status.OK, "bounds of here")
    assert found.text == "25% of evaluator.boards_max; 50% of evaluator.labels_max"
    (nothing,) = judge_bounds("here", "")
    assert nothing.status is Status.NOTE


def test_a_process_that_is_not_ready_says_why_and_shows_its_bounds() -> None:
    answers = {"/readyz": (503, "partition 0: parked\n"), "/metrics": (200, BOUNDS)}
    ready, bound = checked(answers)
    assert (ready.status, ready.text) == (Status.PROBLEM, "partition 0: parked")
    assert bound.status is Status.PROBLEM


def test_a_token_is_sent_and_a_missing_one_named() -> None:
    answers = {"/readyz": (200, "ready\n"), "/metrics": (200, BOUNDS)}
    assert next(iter(checked(answers, "secret", "secret"))).status is Status.OK
    (refused,) = checked(answers, "secret")
    assert (refused.status, refused.text) == (Status.PROBLEM, "it wants a token")
    assert "web.token_file" in refused.advice


def test_nobody_there_is_a_problem() -> None:
    with served({}) as address:
        pass
    (found,) = check_process(address)
    assert (found.status, found.text) == (Status.PROBLEM, "does not answer")
