"""What a running process says of itself: its /readyz, failing deliveries and stores included."""

from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from pipeline.ops.doctor.findings import Finding, fine, problem

ANSWER_S = 10.0


def check_ready(address: str) -> Finding:
    """Whether the process at `address` (host:port) is ready, and what it says if it is not."""
    check = f"readiness of {address}"
    url = address if "://" in address else f"http://{address}"
    try:
        with urlopen(f"{url}/readyz", timeout=ANSWER_S):
            return fine(check, "ready")
    except HTTPError as error:
        message = "; ".join(error.read(2_000).decode(errors="replace").split("\n")).strip("; ")
        return problem(check, message or f"HTTP {error.code}", "see its /status and its log")
    except (URLError, OSError, ValueError):
        return problem(check, "does not answer", "see that it runs, and that --web is right")
