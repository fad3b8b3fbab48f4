"""What is generated is checked in, and the AsyncAPI document holds copartitioned."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from topics import generate
from topics.catalog import CATALOG


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


def test_generated_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().err


def test_check_names_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "topics"
    (folder / "schemas").mkdir(parents=True)
    (folder / "examples").symlink_to(generate.FOLDER / "examples")
    monkeypatch.setattr(generate, "FOLDER", folder)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (folder / "schemas" / "labels.json").write_text("{}")
    (folder / "schemas" / "old.json").write_text("{}")
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == [
        "topics/schemas/labels.json",
        "topics/schemas/old.json",
    ]
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_asyncapi_describes_every_topic() -> None:
    document = yaml.safe_load((generate.FOLDER / "asyncapi.yaml").read_text())
    assert document["asyncapi"].startswith("3.")
    assert list(document["channels"]) == [topic.name for topic in CATALOG]
    assert all(channel["messages"] for channel in document["channels"].values())


def test_every_reference_leads_somewhere() -> None:
    document = yaml.safe_load((generate.FOLDER / "asyncapi.yaml").read_text())
    for reference in references(document):
        if reference.startswith("./"):
            assert json.loads((generate.FOLDER / reference).read_text())
            continue
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
