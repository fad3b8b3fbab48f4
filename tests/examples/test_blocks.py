"""Every block of the documentation does what the page says, or is on the list of those not run."""

import csv
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from pipeline.settings import read_settings
from tests.examples.blocks import ON_A_BROKER, ROOT, RUN_BY, Block, blocks, list_page, pages
from tests.examples.patients import table

BLOCKS = [each for page in pages() for each in blocks(page)]
HELP = "name sh, python, toml, yaml or text, or say what it needs: tests/examples/blocks.py"
LIMIT_S = 600.0


@pytest.mark.parametrize("page", pages())
def test_every_block_has_a_language_or_says_what_it_needs(page: str) -> None:
    text = (ROOT / page).read_text()
    fences = sum(line.lstrip().startswith("```") for line in text.splitlines())
    assert fences == 2 * len(blocks(page)), f"{page}: a fence that is indented or not closed"
    for each in blocks(page):
        assert each.fate, f"{each.where}: {HELP}"
        assert each.tag.startswith(("not run: ", RUN_BY)) or each.tag in ("", ON_A_BROKER), (
            each.where
        )


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.fate == "by"], ids=lambda b: b.where)
def test_a_test_that_runs_a_block_reads_its_page(block: Block) -> None:
    source = (ROOT / block.tag.removeprefix(RUN_BY)).read_text()
    assert Path(block.page).name in source


def test_the_list_of_blocks_is_today_s() -> None:
    assert (ROOT / "docs" / "examples.md").read_text() == list_page()


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language == "toml"], ids=lambda b: b.where
)
def test_settings_on_a_page_can_be_set(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "dtgol.toml"
    path.write_text(block.text)
    assert tomllib.loads(block.text)
    read_settings({}, path)


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language == "yaml"], ids=lambda b: b.where
)
def test_yaml_on_a_page_can_be_read(block: Block) -> None:
    values = yaml.safe_load(block.text)
    if block.page == "docs/deploy.md":
        chart = yaml.safe_load((ROOT / "deploy" / "helm" / "dtgol" / "values.yaml").read_text())
        assert values.keys() <= chart.keys()


def folder_like_a_clone(folder: Path) -> Path:
    """The repository by links, with the environment that runs this test, and a file of records."""
    for entry in ROOT.iterdir():
        if entry.name not in (".venv", "var", "compare-results"):
            (folder / entry.name).symlink_to(entry)
    (folder / ".venv").symlink_to(sys.prefix)
    with (ROOT / "docs" / "patients.csv").open() as file:  # without id and time
        rows = [row[2:] for row in csv.reader(file)][:1_001]
    with (folder / "records.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


@pytest.mark.parametrize("page", sorted({b.page for b in BLOCKS if b.fate == "run"}))
def test_the_blocks_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    """As somebody pastes them: in a clone, one after the other, in one terminal."""
    folder = folder_like_a_clone(tmp_path)
    script = ["set -e"]
    for each in blocks(page):
        if each.fate == "run":
            script.append(f"echo '── {each.where}' >&2")
            end = "the end of the block"
            text = (
                f"python - <<'{end}'\n{each.text}{end}\n"
                if each.language == "python"
                else each.text
            )
            script.append(text)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DTGOL_", "KAFKA_"))
    }
    search = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=kept
        | {"PATH": search, "PYTHONSAFEPATH": "1"},  # kernels of the links would be compiled
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_file_of_the_examples_is_the_demo_s() -> None:
    assert (ROOT / "docs" / "patients.csv").read_text() == table()
