"""The last line of the doctor."""

from pipeline.ops.doctor.findings import fine, note, problem, verdict


def test_the_verdict_names_the_first_thing_to_do() -> None:
    assert verdict([fine("a", "b"), note("c", "d", "not this")]) == "healthy: nothing to do"
    findings = [fine("a", "b"), problem("c", "d", "do this"), problem("e", "f", "that")]
    assert verdict(findings) == "2 problems; begin with: do this"
