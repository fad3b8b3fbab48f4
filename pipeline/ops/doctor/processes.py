"""What running processes say of themselves: whether they are ready, and how full their bounds are.

`/readyz` has failing deliveries and stores too. The bounds of an evaluator are judged only here:
the state of a worker is read from its snapshots.
"""

from collections.abc import Iterator
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

from pipeline.ops.doctor.findings import Finding, fine, note, problem
from pipeline.ops.doctor.state import FULL_MAX, NO_FAULT

ANSWER_S = 10.0
RATIO = "dtgol_bound_used_ratio"


def check_process(address: str, token: str | None = None) -> Iterator[Finding]:
    """Whether the process at `address` (host:port) is ready, and whether a bound is near."""
    ready = f"readiness of {address}"
    try:
        _get(address, "readyz", token)
        yield fine(ready, "ready")
    except HTTPError as error:
        if error.code == 401:
            advice = "set web.token_file to the file that the process has"
            yield problem(ready, "it wants a token", advice)
            return
        said = "; ".join(error.read(2_000).decode(errors="replace").split("\n")).strip("; ")
        yield problem(ready, said or f"HTTP {error.code}", "see its /status and its log")
    except (URLError, OSError, ValueError):
        yield problem(ready, "does not answer", "see that it runs, and that --web is right")
        return
    try:
        yield from judge_bounds(address, _get(address, "metrics", token))
    except (URLError, OSError, ValueError):
        yield note(f"bounds of {address}", "its /metrics could not be read")


def judge_bounds(address: str, metrics: str) -> Iterator[Finding]:
    """The bounds of a process by its own series, the fullest partition of each."""
    check, fullest = f"bounds of {address}", dict[str, tuple[float, str]]()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == RATIO:
                used = sample.value, sample.labels.get("partition", "?")
                bound = sample.labels.get("bound", "?")
                fullest[bound] = max(fullest.get(bound, used), used)
    full = {bound: used for bound, used in fullest.items() if used[0] > FULL_MAX}
    for bound, (share, partition) in sorted(full.items()):
        text = f"{share:.0%} of {bound} is in use (partition {partition})"
        judge = note if bound in NO_FAULT else problem
        yield judge(check, text, f"raise {bound}; docs/limits.md says what happens at it")
    if not fullest:
        yield note(check, "it has no partition that is ready")
    elif not full:
        shares = sorted(fullest.items())
        yield fine(check, "; ".join(f"{share:.0%} of {bound}" for bound, (share, _) in shares))


def _get(address: str, path: str, token: str | None) -> str:
    url = address if "://" in address else f"http://{address}"
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with urlopen(Request(f"{url.rstrip('/')}/{path}", headers=headers), timeout=ANSWER_S) as answer:
        return str(answer.read().decode(errors="replace"))
