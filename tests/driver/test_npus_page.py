"""What docs/npus.md tells its reader to do works as it says: a family of NPUs from another package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from drop_in import describe, tosaic_in

PAGE = (Path(__file__).parents[2] / "docs" / "npus.md").read_text()
BLOCKS = dict(
    zip(
        ("toy.py", "toy_npu.c", "entry_points.txt", "net.py"),
        re.findall(r"```(?:python|c|toml)\n(.*?)```", PAGE, re.S),
        strict=True,
    )
)


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> tuple[Path, list[str]]:
    """The page's files, its package among them, as if it were installed; and what its commands print of the build."""
    folder = tmp_path_factory.mktemp("npus")
    for name in ("toy.py", "toy_npu.c", "net.py"):
        (folder / name).write_text(BLOCKS[name])
    describe("toy", BLOCKS["entry_points.txt"], folder)
    board = ("--target", "corstone-300", "--accelerator", "toy-8")
    _, *printed = tosaic_in(
        folder,
        ("compile", "net.py:net", *board, "-o", "build", "--verify-each"),
        ("run", "build", "--random", 3, "--json"),
        ("npu", "disasm", "build"),
        ("npu", "ops"),
    )
    return folder, printed


def test_it_takes_what_it_says_and_the_build_is_exact(told):
    folder, (run, *_) = told
    manifest = json.loads((folder / "build" / "manifest.json").read_text())
    on = {op["op"]: op["processor"] for op in manifest["ops"]}
    assert on["CONV2D"] == "npu" and on["MAX_POOL2D"] == "cpu"
    (pool,) = [op for op in manifest["ops"] if op["op"] == "MAX_POOL2D"]
    assert pool["reason"] == "toy-8 has no MAX_POOL2D"
    ran = json.loads(run)
    assert ran["exact"] and ran["npu_cycles"] == sum(region["cycles"] for region in manifest["regions"])


def test_its_streams_and_its_ops_are_printed(told):
    _, (_, stream, ops) = told
    assert "CONV2D  # aten.conv2d.default" in stream
    assert "U55, U65" in ops and re.search(r"CLAMP +int8", ops)


def test_its_driver_ships(told):
    folder, _ = told
    assert {path.name for path in (folder / "build" / "kit" / "lib").glob("*.a")} == {"libmodel.a", "libtosaic_npu.a"}
