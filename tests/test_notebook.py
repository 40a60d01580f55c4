"""The example notebook runs from top to bottom, and shows what its text promises."""

from __future__ import annotations

import re
from pathlib import Path

import nbclient
import nbformat

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output
    )
    float_right, board_right = (int(share) for share in re.findall(r"(\d+)% right", printed))
    assert board_right >= float_right - 2 >= 80
    assert "equal to the reference to the bit: True" in printed
    assert int(re.findall(r"report.html: ([\d,]+) B", printed)[0].replace(",", "")) > 1_000_000
    assert not any(cell.get("outputs") for cell in nbformat.read(NOTEBOOK, as_version=4).cells)
