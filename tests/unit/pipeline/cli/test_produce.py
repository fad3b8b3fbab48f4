"""`dtgol produce`: the ids that rows get."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import pytest
from click.testing import CliRunner

import pipeline.client
from pipeline.cli import dtgol


class FakeProducer:
    """Takes what is sent, in place of both producers."""

    sent: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, client: object, prefix: str = "") -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def send(self, id: str, value: Any, **more: Any) -> None:
        self.sent.append({"id": id, "value": value, **more})

    def flush(self) -> None:
        pass


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.client, "FeatureProducer", FakeProducer)
    monkeypatch.setattr(pipeline.client, "LabelProducer", FakeProducer)
    monkeypatch.setattr(FakeProducer, "sent", [])


def ids(path: Path, *options: str) -> list[str]:
    """The ids of the records that one run sends."""
    FakeProducer.sent.clear()
    given = ["produce", str(path), "--no-labels", "--bootstrap", "nowhere:1", *options]
    result = CliRunner().invoke(dtgol, given)
    assert result.exit_code == 0, result.output
    return [each["id"] for each in FakeProducer.sent]


def test_another_file_repeats_no_id_and_the_same_one_all(tmp_path: Path) -> None:
    """Seen: row numbers as ids, a second file swallowed as repeats, CER .430 for a true .268."""
    monday, tuesday = tmp_path / "mon" / "data.csv", tmp_path / "tue" / "data.csv"
    for path, first in ((monday, 1), (tuesday, 7)):
        path.parent.mkdir()
        path.write_text(f"a,label\n{first},0\n2,1\n")
    assert not set(ids(monday)) & set(ids(tuesday))
    assert ids(monday) == ids(monday)
    assert len(set(ids(monday))) == 2
    assert not set(ids(monday)) & set(ids(monday, "--missing", "0.5"))
    assert ids(monday)[0].startswith("data-")


def test_repeats_in_the_file_are_counted_and_said(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("who,a,label\nx,1,0\nx,2,1\ny,3,0\n")
    given = ["produce", str(path), "--id", "who", "--bootstrap", "nowhere:1", "--json"]
    result = CliRunner().invoke(dtgol, given)
    assert json.loads(result.stdout)["repeats"] == 1
    assert "1 of 3 rows repeat an id" in result.stderr


def test_event_times_of_the_file_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("at,a,label\n2024-01-01,1,0\n")
    ids(path, "--time", "at")
    assert FakeProducer.sent[0]["ts_ms"] == 1_704_067_200_000
