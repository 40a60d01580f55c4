"""Target files: what may stand in one and what it changes, what a wrong one is told, and the schema of both."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tosaic.backends.cores import find_core
from tosaic.backends.ethos_u.accelerators import find_accelerator
from tosaic.support.errors import Error
from tosaic.target_files.declaration import declaration, examine
from tosaic.target_files.ready import find_target
from tosaic.target_files.schema import TargetFile, json_schema
from tosaic.target_files.source import READY, load, ready

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
BOARD = """\
name = "mine"
core = "cortex-m55"
clock = 400_000_000
code = "flash"
stack = "dtcm"
stack_size = 0x2000
arena = ["dtcm", "sram"]
constants = "flash"

[memory.flash]
base = 0x0800_0000
size = 0x0020_0000
wait_states = 3
width = 16

[memory.dtcm]
base = 0x2000_0000
size = 0x0002_0000
tightly_coupled = true

[memory.sram]
base = 0x2400_0000
size = 0x0008_0000
bytes_per_cycle = 8
latency = 4
clock = 200_000_000
reserved = { "radio stack" = 0x8000 }
"""
NPU = BOARD.replace('arena = ["dtcm", "sram"]', 'arena = ["sram"]\naccelerator = "ethos-u55-128"')
TWO = (
    NPU.replace('"ethos-u55-128"', '"small"')
    + """
[npu.large]
accelerator = "ethos-u85-256"
clock = 500_000_000
registers = 0x4904_2000

[npu.small]
accelerator = "ethos-u55-64"
clock = 400_000_000
memory_mode = "Sram_Only"
"""
)


@pytest.fixture
def board(tmp_path):
    """Write a target file, with some of its text replaced, and return its path."""

    def write(*changes: tuple[str, str], text: str = BOARD, name: str = "board.toml") -> Path:
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_what_a_file_says_of_memories(board):
    target = find_target(str(board()))
    flash, stack, dtcm, sram = target.layout.memories
    assert (flash.bytes_per_cycle, flash.latency) == (4, 0)  # 16 bytes in 1 + 3 cycles
    assert (stack.base, stack.size) == (0x2001_E000, 0x2000) and dtcm.base + dtcm.size == stack.base
    assert sram.size == 0x7_8000 and sram.reserved == (("radio stack", 0x8000),)
    assert (sram.bytes_per_cycle, sram.latency) == (4, 8)  # at half of the core's clock
    slow = find_target(str(board()), clock=200_000_000).layout
    assert (slow.arena[1].bytes_per_cycle, slow.arena[1].latency) == (8, 4) and slow.code == flash


def test_a_core_has_several_clocks(board, refused):
    file = board(("clock = 400_000_000", "clock = { boost = 400_000_000, run = 100_000_000 }"))
    assert find_target(str(file)).clock == 400_000_000
    assert find_target(str(file), clock="run").clock == 100_000_000
    message = refused("compile", "zoo:dscnn", "--target", file, "--clock", "idle")
    assert "`mine` has no clock `idle`\n  try: boost, run" in message


def test_a_core_lacks_what_its_name_leaves_out():
    bare = find_core("cortex-m33+nofp+nodsp")
    assert (bare.isa, bare.float_abi, bare.triple) == ((), "soft", "thumbv8m.main-none-eabi")
    assert find_core("cortex-m7+nofp.dp").isa == ("dsp", "fp")
    assert find_core("cortex-m55+nomve.fp").mve and not find_core("cortex-m55+nomve").mve
    with pytest.raises(Error, match=r"left out `nofpp`\n  try: did you mean `nofp`\?"):
        find_core("cortex-m33+nofpp")


def test_one_of_several_npus_is_chosen_by_name(board):
    file = str(board(text=TWO))
    small, large = find_target(file), find_target(file, accelerator="large")
    assert (small.accelerator, small.npu_clock, small.memory_mode) == ("ethos-u55-64", 400_000_000, "Sram_Only")
    assert (large.accelerator, large.npu_registers, large.memory_mode) == ("ethos-u85-256", 0x4904_2000, None)
    assert find_target(file, accelerator="ethos-u85-256") == large
    with pytest.raises(Error, match="there is no accelerator `huge`\n  try: one of large, small, ethos-u55-32"):
        find_target(file, accelerator="huge")


def test_a_tightly_coupled_memory_that_the_npu_reaches_at_another_address(board):
    alias = ("tightly_coupled = true", "tightly_coupled = true\nnpu_base = 0x5080_0000")
    file = board(('"sram"]', '"dtcm"]'), alias, text=NPU)
    assert [memory.npu_base for memory in find_target(str(file)).layout.arena] == [0x5080_0000]
    assert "the NPU does not reach the memory `dtcm`" in problems(board(('"sram"]', '"dtcm"]'), text=NPU))


def test_a_port_is_the_files_or_the_srams_for_the_fastest_of_the_arena(board):
    target = find_target(str(board(text=NPU)))
    assert [target.npu_port(memory) for memory in (target.layout.arena[0], target.layout.constants)] == ["sram", "ext"]
    said = find_target(str(board(("wait_states", 'npu_port = "sram"\nwait_states'), text=NPU)))
    assert said.npu_port(said.layout.constants) == "sram"
    assert find_target("corstone-300", arena=["ddr"]).layout.arena[0].npu_port == "ext"


def test_a_file_extends_a_chip_or_another_file(board):
    board(name="chip.toml")
    text = 'name = "kit"\nextends = "chip.toml"\nsources = ["its schematic"]\n\n[memory.sram]\nsize = 0x0004_0000\n'
    kit = declaration(board(text=text, name="kit.toml"))
    assert kit.target.name == "kit" and kit.sources == ("its schematic",)
    assert [memory.size for memory in kit.target.layout.arena] == [0x1_E000, 0x3_8000]
    wrong = board(("size =", "sise ="), text=text, name="kit.toml")
    assert problems(wrong) == f"{wrong}:6: there is no key `sise` in `memory.sram`; did you mean `size`?"
    for extended, words in (("stm32h74", "did you mean `stm32h743`?"), ("kit.toml", "extends itself")):
        with pytest.raises(Error, match=re.escape(words)):
            examine(board(("chip.toml", extended), text=text, name="kit.toml"))


def problems(file: Path) -> str:
    declared, found = examine(file)
    assert bool(found) != bool(declared)
    return "\n".join(map(str, found))


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("clock =", "clok =", 3, "there is no key `clok`; did you mean `clock`?"),
        ("wait_states = 3", "speed = 3", 13, "there is no key `speed` in `memory.flash`; one of base, size, reserved,"),
        ("size = 0x0020_0000", 'size = "2 MiB"', 12, "`memory.flash.size` is a text, not a whole number"),
        ("size = 0x0020_0000", "size = 0", 12, "`memory.flash.size` is 0, not more than 0"),
        ("base = 0x0800_0000", "base = 0x1_0000_0000", 11, "`memory.flash.base` is 4294967296, not less than"),
        ("base = 0x0800_0000\n", "", 10, "`memory.flash` has no key `base`; its address"),
        ('name = "mine"\n', "", 1, "the file has no key `name`; what `--target` takes"),
        ('name = "mine"', 'name = "a b"', 1, "`a b` is no name; letters, digits,"),
        ('core = "cortex-m55"', "core = 55", 2, "`core` is a whole number, not a text or a table"),
        ('core = "cortex-m55"', 'core = "cortex-m555"', 2, "no core `cortex-m555`; did you mean `cortex-m55`?"),
        ('core = "cortex-m55"', 'core = { name = "m1" }', 2, "`core` has no key `triple`; LLVM target triple"),
        ('code = "flash"', 'code = "flesh"', 4, "there is no memory `flesh`; did you mean `flash`?"),
        ('arena = ["dtcm", "sram"]', "arena = []", 7, "`arena` is empty"),
        ('"sram"]', '"ram"]', 7, "there is no memory `ram`; did you mean `sram`?"),
        ("base = 0x2400_0000", "base = 0x2001_0000", 22, "`dtcm` ends at 0x20020000, and `sram` begins at 0x20010000"),
        ("stack_size = 0x2000", "stack_size = 0x20000", 6, "the stack takes all of the memory `dtcm`"),
        ("width = 16\n", "", 10, "the memory `flash` has one of `wait_states` and `width`"),
        ("width = 16", "width = 16\nlatency = 2", 13, "the memory `flash` has two speeds"),
        ("clock = 400_000_000\n", "", 25, "the memory `sram` has a clock, and the core has none"),
        ("= 0x8000 }", "= 0x8_0000 }", 27, "others need all of the memory `sram`"),
        ("latency = 4", 'latency = 4\ncaches = ["l1"]', 26, "there is no cache `l1`; declare [cache.NAME]"),
        ("latency = 4", 'latency = 4\nnpu_port = "M0"', 26, "`memory.sram.npu_port` is `M0`; one of ext, sram"),
        ("clock = 400_000_000", 'clock = 4\nmemory_mode = "Sram_Only"', 4, "no NPU that `memory_mode` could be of"),
        ("clock = 400_000_000", 'clock = 4\nunchecked = ["memory.flash.sise"]', 4, "`memory.flash.sise` is no key"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_so_in_a_line(board, old, new, line, words):
    file = board((old, new))
    assert problems(file).startswith(f"{file}:{line}: ") and words in problems(file)
    with pytest.raises(Error) as caught:
        find_target(str(file))
    assert f"at: {file}:{line}" in str(caught.value) and words.partition("; ")[0] in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"ethos-u55-128"', '"ethos-u55-3"', "there is no accelerator `ethos-u55-3`; did you mean `ethos-u55-32`?"),
        ("clock =", 'system_config = "Ethos_U55"\nclock =', "there is no system configuration of Vela's `Ethos_U55`"),
        ("latency = 4", 'latency = 4\nnpu_port = "ext"', "ethos-u55-128 only reads the memory `sram` of the arena"),
        ("clock =", 'vela_config = "none.ini"\nclock =', "none.ini`; No such file or directory"),
        ("clock =", 'vela_config = "board.toml"\nclock =', "no configuration of Vela's; File contains no section"),
    ],
)  # fmt: skip
def test_a_wrong_npu(board, old, new, words):
    assert words in problems(board((old, new), text=NPU))


def test_several_npus_say_what_is_whose(board):
    stray = problems(board(("clock =", "npu_clock = 4\nclock ="), text=TWO))
    assert "`npu_clock` is of which NPU?; say it in [npu.large]" in stray
    assert "there is no NPU `tiny`; one of large, small" in problems(board(('"small"', '"tiny"'), text=TWO))


def test_all_that_is_wrong_is_told_at_once(board, tosaic):
    file = board(("clock =", "clok ="), ("wait_states", "waitstates"))
    result = tosaic("targets", "check", file)
    assert result.exit_code == 1 and [line.split(": ")[0] for line in result.stdout.splitlines()] == [
        f"{file}:3",
        f"{file}:13",
    ]
    found = json.loads(tosaic("targets", "check", file, "--json").stdout)
    assert found["target"] is None and [problem["hint"] for problem in found["problems"]] == [
        "did you mean `clock`?", "did you mean `wait_states`?"
    ]  # fmt: skip
    with pytest.raises(Error, match="and 1 more: `tosaic targets check` lists them"):
        find_target(str(file))


def test_no_toml_names_the_line(board, refused):
    file = board(("[memory.flash]", "[memory.flash"))
    assert f"`{file}` declares no target\n  at: {file}:10\n" in refused("targets", "check", file)


def test_a_right_file_is_shown(board, tosaic):
    shown = tosaic("targets", "check", board(text=TWO)).stdout
    assert "small: ethos-u55-64 at 400 MHz, registers at 0x58102000; for Vela Sram_Only" in shown
    assert "radio stack 32 KiB" in shown and "mps3-an547, a cortex-m55, which stands in" in shown


def test_files_are_as_the_schema_has_them(tosaic):
    schema = json.loads(tosaic("targets", "schema").stdout)
    assert schema == json_schema()
    Draft202012Validator.check_schema(schema)
    for file in ready().values():
        assert list(Draft202012Validator(schema).iter_errors(load(file).table)) == []
    assert set(schema["$defs"]["TargetFile"]["properties"]) == set(TargetFile.__struct_fields__)


def test_registers_are_those_of_the_reference_system_where_nobody_says(board):
    assert find_target(str(board(text=NPU))).npu_registers is None
    assert find_accelerator("ethos-u55-128").registers == 0x5810_2000


VALUES = (
    "0",
    "-1",
    '""',
    '"x"',
    "[]",
    "{}",
    "1.5",
    "true",
    "1979-05-27",
    "nan",
    '["a"]',
    "{a=1}",
    '"flash"',
    '"a\\nb"',
)


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_file_is_read_or_told_what_is_wrong_in_lines(tmp_path, seed):
    """Values of other kinds, lines that are missing or stand twice: no other exception, and never a second line."""
    rng, files, outcomes = random.Random(seed), list(ready().values()), Counter[str]()
    for _ in range(60):
        file = rng.choice(files)
        lines = file.read_text().splitlines()
        at = rng.randrange(len(lines))
        if "=" in lines[at] and rng.random() < 0.8:
            lines[at] = f"{lines[at].partition('=')[0]}= {rng.choice(VALUES)}"
        else:
            lines[at : at + 1] = rng.choice(([], [rng.choice(lines)], [lines[at]] * 2))
        damaged = tmp_path / "damaged.toml"
        damaged.write_text("\n".join(lines))
        (tmp_path / "vela.ini").write_text((READY / "alif" / "vela.ini").read_text())
        try:
            declared, found = examine(damaged)
        except Error as error:
            outcomes["no TOML" if "no TOML" in error.why else error.what] += 1
            continue
        outcomes["read" if declared else "told"] += 1
        assert all(re.fullmatch(r"/.*\.toml:\d+: .+", str(problem)) for problem in found), found
    assert outcomes["told"] > 20 and outcomes["read"] > 2, outcomes
