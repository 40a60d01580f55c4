"""A chip that QEMU does not have: another machine stands in for it, and what ships has the chip's own addresses."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from conftest import NETS

from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.support.errors import Error
from tosaic.target_files.ready import find_target

H743 = """
name = "stm32h743"
code = "flash"
stack = "dtcm"
arena = ["dtcm", "axi"]
constants = "flash"

[core]
name = "cortex-m7"
triple = "thumbv7em-none-eabihf"
isa = ["dsp", "fp"]
float_abi = "hard"

[memory.flash]
base = 0x0800_0000
size = 0x0020_0000

[memory.dtcm]
base = 0x2000_0000
size = 0x0002_0000

[memory.axi]
base = 0x2400_0000
size = 0x0008_0000
"""
NPU = H743.replace('"dtcm", "axi"', '"axi"').replace(
    'constants = "flash"', 'constants = "flash"\naccelerator = "ethos-u55-64"'
)


@pytest.fixture
def board(tmp_path):
    """Write a target file, with some of its text replaced, and return its path."""

    def write(text: str = H743, *changes: tuple[str, str]):
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        file = tmp_path / "board.toml"
        file.write_text(text)
        return file

    return write


@pytest.mark.parametrize(
    "changes",
    [(), (("[memory.flash]", '[board]\nmachine = "mps2-an500"\n\n[memory.flash]'),)],
    ids=["no machine", "a machine without these memories"],
)
def test_a_board_that_qemu_has_not(succeed, tosaic, board, tmp_path, changes):
    file = board(H743, *changes)
    options = ("--target", file, "--records", tmp_path / "records.db", "-o", tmp_path / "build")
    assert succeed("compile", f"{NETS}:net", *options, "--arena-size", 20000)["target"] == "stm32h743"
    found = succeed("run", tmp_path / "build", "--random", 2)
    assert found["exact"] and found["instructions"] > 10_000 and found["cycles"] is None
    shown = tosaic("compile", f"{NETS}:net", *options).stdout
    assert re.search("mps3-an547: its code on a cortex-m55; as large and as fast memories, at +other", shown)


def test_its_npu_too(succeed, board, tmp_path):
    file = board(NPU, ('name = "cortex-m7"', 'name = "cortex-m85"'), ("v7em", "v8.1m.main"), ('"fp"]', '"fp", "mve"]'))
    succeed("compile", f"{NETS}:net", "--target", file, "-o", tmp_path / "build")
    found = succeed("run", tmp_path / "build", "--random", 1)
    assert found["exact"] and found["npu_cycles"] > 0


def test_memories_lie_one_behind_the_other_as_large_and_as_fast(board):
    target = find_target(str(board()))
    on = simulation_of(target)
    assert on.stands_in and on.machine == "mps3-an547" and on.layout.vectors and on.layout.vectors.base == 0
    assert on.layout.code == on.layout.constants and on.layout.stack == on.layout.arena[0]  # as on the chip
    pairs = zip(target.layout.memories, on.layout.memories, strict=False)
    assert all(replace(there, base=here.base) == here for here, there in pairs)
    ends = sorted((memory.base, memory.base + memory.size) for memory in on.layout.memories)
    assert all(end <= base for (_, end), (base, _) in itertools.pairwise(ends))


def test_a_machine_that_has_the_memories_runs_the_code_where_it_lies():
    on = simulation_of(find_target("cortex-m55"))
    assert not on.stands_in and on.layout == find_target("cortex-m55").layout


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((("base = 0x2400_0000", "base = 0x2001_0000"),), "`dtcm` ends at 0x20020000, and `axi` begins at 0x20010000"),
    ],
)  # fmt: skip
def test_files_that_cannot_be(board, changes, words):
    with pytest.raises(Error) as caught:
        find_target(str(board(H743, *changes)))
    assert words in str(caught.value)


def test_more_memory_than_the_simulator_has(board):
    large = ("base = 0x0800_0000\nsize = 0x0020_0000", "base = 0x4000_0000\nsize = 0x4000_0000")
    target = find_target(str(board(H743, large)))
    with pytest.raises(Error, match="the memories of `stm32h743` have 1,026 MiB, and the simulator has 512"):
        simulation_of(target)
