"""JSON lines as records: both shapes, types as they are, clear refusals."""

from pathlib import Path

import pytest

from pipeline.errors import InputError
from pipeline.offline.files.records import Mask, Row, read_records


def write(folder: Path, text: str) -> Path:
    path = folder / "stream.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def test_flat_objects_have_features_and_a_label(tmp_path: Path) -> None:
    path = write(
        tmp_path, '{"a": 1, "b": "x", "label": 1}\n\n{"c": true, "a": null, "label": false}\n'
    )
    assert list(read_records(path)) == [Row(0, {"a": 1, "b": "x"}, 1), Row(1, {"c": True}, 0)]


def test_objects_as_on_the_wire_have_id_and_key(tmp_path: Path) -> None:
    path = write(tmp_path, '{"id": 7, "x": {"a": 1.5}, "y": 1, "key": "k"}\n{"x": {"b": 2}}\n')
    assert list(read_records(path)) == [
        Row(0, {"a": 1.5}, 1, "7", "k"),
        Row(1, {"b": 2}, None, None, None),
    ]


def test_id_and_key_columns_are_no_features(tmp_path: Path) -> None:
    path = write(tmp_path, '{"who": "p1", "ward": "B", "a": 1, "label": 0}\n')
    (row,) = read_records(path, id_column="who", key_column="ward")
    assert row == Row(0, {"a": 1}, 0, "p1", "B")


def test_id_and_key_columns_of_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "stream.csv"
    path.write_text("who,a,label,ward\n p1 ,1,0,B\n,2,1,C\n")
    assert list(read_records(path, id_column="who", key_column="ward")) == [
        Row(0, {"a": 1}, 0, "p1", "B"),
        Row(1, {"a": 2}, 1, None, "C"),
    ]
    with pytest.raises(InputError, match="no column 'nobody' for the id"):
        read_records(path, id_column="nobody")


def test_the_same_rows_lose_the_same_cells_in_both_formats(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(6)]
    csv = tmp_path / "stream.csv"
    lines = [",".join([*names, "label"])]
    objects = []
    for row in range(40):
        values = [row * 6 + i for i in range(6)]
        lines.append(",".join(map(str, [*values, row % 2])))
        pairs = ", ".join(f'"{name}": {value}' for name, value in zip(names, values, strict=True))
        objects.append(f'{{{pairs}, "label": {row % 2}}}')
    csv.write_text("\n".join(lines) + "\n")
    jsonl = write(tmp_path, "\n".join(objects))
    for mask in (Mask(pairs=True), Mask(rate=0.3)):
        options = {"mask": mask, "seed": 3, "shuffle": True}
        assert list(read_records(csv, **options)) == list(read_records(jsonl, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is empty"),
        ("not json\n", "line 1 of .* is not JSON"),
        ('{"a": 1, "label": 1}\n[1]\n', "line 2 of .* is not a JSON object"),
        ('{"a": NaN, "label": 1}\n', "line 1 of .* is not JSON"),
        ('{"a": [1], "label": 1}\n', "line 1 of .*: 'a' is neither"),
        ('{"a": 1, "label": 2}\n', "line 1 of .*: the label 'label' must be 0"),
        ('{"a": 1, "y": 2}\n', "no field 'label'"),
        ('{"x": {"a": 1}}\n{"a": 1}\n', 'line 2 of .*: "x" is not an object'),
        ('{"x": {"a": 1}, "id": 1.5}\n', "line 1 of .*: the id is neither"),
        ('{"label": 1}\n', "has no features"),
    ],
)
def test_faults_name_the_line(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        read_records(write(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_records(tmp_path / "no.jsonl")
