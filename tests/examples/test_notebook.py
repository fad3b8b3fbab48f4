"""docs/notebook.ipynb is run from the first cell to the last, and kept without outputs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.examples.blocks import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
LIMIT_S = 600.0
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
where = {"metadata": {"path": sys.argv[2]}}
NotebookClient(book, timeout=600, kernel_name="python3", resources=where).execute()
nbformat.write(book, sys.argv[3])
"""


def outputs(cell: dict[str, Any]) -> list[str]:
    """The kinds of what a cell shows: text, or a picture."""
    return [
        each.get("name", "image/png" if "image/png" in each.get("data", {}) else "")
        for each in cell["outputs"]
    ]


def test_the_notebook_runs_and_shows_that_the_forecast_is_ahead(tmp_path: Path) -> None:
    """In a process of its own: the kernel's packages warn, and warnings are errors here."""
    path = tmp_path / "executed.ipynb"
    command = [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(NOTEBOOK.parent), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    cells = [each for each in json.loads(path.read_text())["cells"] if each["cell_type"] == "code"]
    shown = [kind for cell in cells for kind in outputs(cell)]
    assert shown.count("image/png") == 3
    assert "stderr" not in shown
    text = "".join(
        line for cell in cells for each in cell["outputs"] for line in each.get("text", [])
    )
    assert "2400 records" in text
    assert "the forecast is right +" in text


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not each.get("outputs") and not each.get("execution_count") for each in cells)
