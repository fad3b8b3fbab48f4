"""How far a long run is: lines, or a bar on a terminal."""

import pytest

from pipeline.cli.progress import progress, status


def test_elsewhere_than_on_a_terminal_a_line_comes_every_five_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 5.5, 6.0, 10.6])
    monkeypatch.setattr("pipeline.cli.progress.monotonic", lambda: next(clock))
    with progress(100, "records") as update:
        for done in (10, 50, 60, 90):
            update(done)
    assert capsys.readouterr().err == (
        "50 of 100 records, 6 s, about 6 s left\n90 of 100 records, 11 s, about 1 s left\n"
    )


def test_on_a_terminal_there_is_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress(100, "records") as update:
        for done in range(101):
            update(done)
    assert "100/100" in capsys.readouterr().err


def test_a_status_is_a_line_where_nothing_was_shown_for_five_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("pipeline.cli.progress.monotonic", lambda: clock[0])
    # "" is before something else is printed, and "looking" comes three seconds after it.
    texts = (1.0, "asking"), (5.5, "reading"), (6.0, "counting"), (9.0, ""), (12.0, "looking")
    with status() as show:
        for now, text in texts:
            clock[0] = now
            show(text)
    assert capsys.readouterr().err == "reading …\n"


def test_on_a_terminal_a_status_is_replaced_and_at_last_cleared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with status() as show:
        show("asking")
        show("reading")
    assert capsys.readouterr().err == "\r\x1b[2Kasking\r\x1b[2Kreading\r\x1b[2K"
