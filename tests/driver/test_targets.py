"""Targets as data: TOML files, cores, targets and runners of other packages, and builds that run on what they say."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import NETS

from tosaic.api import Build
from tosaic.backends.bench.monitor import image_layout
from tosaic.backends.cores import find_core
from tosaic.backends.simulators.execution import Execution
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.backends.target import Core
from tosaic.builds.build import seal
from tosaic.support.errors import Error
from tosaic.target_files.ready import declarations, find_target, with_constants_in
from tosaic.target_files.source import READY

AN386 = Path(__file__).parents[2] / "examples" / "targets" / "mps2-an386.toml"


@pytest.fixture
def install(monkeypatch):
    """Let an installed package name `what` as the entry point `value` of `group`."""

    def install(group: str, value: str, what: object) -> None:
        entry = importlib.metadata.EntryPoint(value, value, group)
        monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: what)
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry] if group == entry.group else [])

    return install


def test_the_autoencoder_on_a_cortex_m4_that_one_file_declares(succeed, tosaic, tmp_path):
    compiled = succeed("compile", "zoo:autoencoder", "--target", AN386, "-o", tmp_path / "m4")
    assert compiled["target"] == "mps2-an386" and {k["trial_cycles"] for k in compiled["kernels"]} == {None}
    assert {kernel["schedule"].partition("(")[0] for kernel in compiled["kernels"]} == {"conv2d.program"}
    report = succeed("run", tmp_path / "m4", "--random", 2)
    assert report["exact"] and report["instructions"] > 100_000
    assert report["cycles"] is None and {kernel["cycles"] for kernel in report["kernels"]} == {None}
    table = tosaic("run", tmp_path / "m4", "--random", 1).stdout
    assert "instructions" in table and "cycles (model)" not in table and "modeled" not in table


def test_tuning_minimizes_instructions_where_no_cycles_are_known(succeed, refused, tmp_path):
    options = (f"{NETS}:net", "--target", AN386, "--records", tmp_path / "records.db", "--tune-trials", 6)
    for best in succeed("tune", *options)["best"]:
        assert best["cycles"] is None and best["milliseconds"] is None
    message = refused("tune", *options, "--objective", "cycles")
    assert "no cycle model of `cortex-m4` exists\n  try: --objective instructions" in message


def test_a_build_runs_on_the_board_that_its_manifest_names(succeed, refused, tmp_path):
    folder = tmp_path / "build"
    succeed("compile", f"{NETS}:net", "-o", folder)
    manifest = Build.load(folder).manifest
    board = replace(manifest.target.board, machine="no-such-machine")
    replace(manifest, target=replace(manifest.target, board=board)).write(folder)
    seal(folder)
    assert "no-such-machine" in refused("run", folder, "--random", 1)


def test_a_target_says_what_it_is(tosaic, succeed):
    listed = {row["name"]: row for row in succeed("targets")["targets"]}
    assert listed["cortex-m55"]["layout"]["arena"][1] == {
        "name": "sram", "base": 0x2100_0000, "size": 4 << 20, "bytes_per_cycle": 8, "latency": 38,
        "tightly_coupled": False, "line_fill": 42, "line_write_back": 42, "clock": None, "npu_base": None,
        "npu_port": None, "reserved": [],
        "caches": [
            {"name": "icache", "size": 32768, "ways": 2, "line": 32, "holds": "code", "policy": "lru",
             "writes": "back"},
            {"name": "dcache", "size": 32768, "ways": 4, "line": 32, "holds": "data", "policy": "lru",
             "writes": "back"},
        ],
    }  # fmt: skip
    shown = tosaic("targets", "show", "cortex-m55").stdout
    assert "itcm" in shown and "dcache 32 KiB" in shown and "a cycle model" in shown
    assert succeed("targets", "show", "cortex-m55") == listed["cortex-m55"]


CACHED = AN386.read_text().replace(
    "[memory.psram]",
    """\
[cache.xip]
size = 16384
ways = 2
line = 8

[memory.psram]
bytes_per_cycle = 0.5
latency = 20
caches = ["xip"]
line_fill = 30""",
)


def test_a_file_declares_caches(tmp_path):
    file = tmp_path / "board.toml"
    file.write_text(CACHED)
    psram = find_target(str(file)).layout.arena[1]
    (xip,) = psram.caches
    assert psram.data_cache is xip is psram.code_cache and psram.line_fill == 30
    assert (xip.name, xip.size, xip.line, xip.policy, xip.writes) == ("xip", 16384, 8, "lru", "back")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('caches = ["xip"]', 'caches = ["xib"]', "there is no cache `xib`\n  at: "),
        ("line = 8", "line = 12", "a line of the cache `xip` has 12 bytes, no power of two from 4 on"),
        ("ways = 2", "ways = 3", "has no power of two of sets of 3 x 8 B"),
        ("line = 8", 'line = 8\nholds = "everything"', "`cache.xip.holds` is `everything`\n  at: "),
        ("[memory.psram]", "[cache.l2]\nsize = 64\nways = 1\nline = 8\n\n[memory.psram]", None),
    ],
)
def test_a_file_with_caches_that_cannot_be(tmp_path, old, new, words):
    file = tmp_path / "board.toml"
    file.write_text(CACHED.replace(old, new, 1))
    if words is None:
        file.write_text(file.read_text().replace('["xip"]', '["xip", "l2"]'))
        words = "the memory `psram` has two caches of data"
    with pytest.raises(Error) as caught:
        find_target(str(file))
    assert words in str(caught.value)


def test_weights_share_a_memory_with_the_arena_where_both_name_it():
    layout = find_target("corstone-320", constants="sram", arena=["sram"]).layout
    assert [memory.name for memory in (*layout.arena, layout.constants)] == ["sram", "sram"]
    assert [memory.name for memory in find_target("corstone-320", constants="sram").layout.arena] == ["ddr"]


def test_the_arena_lies_in_the_memories_that_the_user_names():
    layout = find_target("cortex-m55", arena=["sram", "dtcm"]).layout
    assert [memory.name for memory in layout.arena] == ["sram", "dtcm"]
    with pytest.raises(Error, match=r"there is no memory `srm`\n  try: did you mean `sram`\?"):
        find_target("cortex-m55", arena=["srm"])
    with pytest.raises(Error, match="the NPU of `corstone-300` does not reach `itcm`"):
        find_target("corstone-300", arena=["itcm"])
    assert find_target("cortex-m55", arena=["stack"]).layout.arena[0].name == "stack"


@pytest.mark.parametrize("target, memory", [("stm32u575", "flash"), ("cortex-m55", "mram"), ("cortex-m55", "itcm")])
def test_no_arena_lies_in_what_is_only_read(target, memory):
    with pytest.raises(Error, match=f"`{memory}` of `{target}` cannot hold the arena\n  because: the target has it"):
        find_target(target, arena=[memory])


def test_weights_lie_in_a_memory_of_the_target_that_the_arena_does_not_take():
    layout = find_target("cortex-m55", constants="sram", arena=["dtcm"]).layout
    assert [memory.name for memory in (*layout.arena, layout.constants)] == ["dtcm", "sram"]


def test_an_npu_takes_the_place_of_another_and_no_other():
    other = find_target("corstone-300", accelerator="ethos-u55-64")
    assert other.accelerator == "ethos-u55-64" and [memory.name for memory in other.layout.arena] == ["sram", "ddr"]
    with pytest.raises(Error, match="`cortex-m55` has no NPU that another one could replace"):
        find_target("cortex-m55", accelerator="ethos-u55-64")


def test_weights_lie_where_the_user_says_and_the_arena_elsewhere():
    layout = find_target("cortex-m55", constants="sram").layout
    assert layout.constants.name == "sram" and [memory.name for memory in layout.arena] == ["dtcm", "ddr"]
    with pytest.raises(Error, match=r"there is no memory `dram`\n  try: did you mean `sram`\?"):
        find_target("cortex-m55", constants="dram")
    with pytest.raises(Error, match="the NPU of `corstone-300` does not reach `itcm`"):
        find_target("corstone-300", constants="itcm")
    small = replace(find_target("cortex-m55"), layout=replace(layout, arena=layout.arena[:1]))
    with pytest.raises(Error, match="`dtcm` is all the memory that the arena of `cortex-m55` has"):
        with_constants_in("dtcm", small)


def test_trials_lie_in_memories_as_fast_as_the_targets_own():
    target = find_target("cortex-m55", constants="sram")
    fast, lies = target.layout, target.trials
    pairs = [(fast.code, lies.code), (fast.stack, lies.stack), (fast.arena[0], lies.arena[0]),
             (fast.constants, lies.constants)]  # fmt: skip
    for memory, stand_in in pairs:
        assert replace(memory, base=stand_in.base, size=stand_in.size) == stand_in
    assert lies.constants.base == 0x6400_0000


def test_images_for_a_board_with_flash_lie_in_the_memories_for_trials(tmp_path):
    file = tmp_path / "board.toml"
    trials = '[trials]\ncode = "ssram23"\nstack = "stack"\narena = "psram"\nconstants = "ssram23"\n\n'
    file.write_text(AN386.read_text().replace("[board]", trials + "[board]"))
    target, same = find_target(str(file)), find_target(str(AN386))
    lie = image_layout(target)
    assert (lie.code.name, lie.code.base, lie.code.size) == ("ssram1", 0x2001_0000, 0x003F_0000)  # in place of flash
    assert (lie.stack.base, lie.stack.size) == (0x2000_0000, 0xE000)  # the monitor has the rest
    assert [memory.base for memory in (*lie.arena, lie.constants)] == [0x2100_0000, 0x2001_0000]
    beside = image_layout(same)
    assert beside.code.base == beside.constants.base == 0x4000 and target.layout == same.layout
    file.write_text(AN386.read_text().replace("[board]", trials.replace("psram", "sram", 1) + "[board]"))
    with pytest.raises(Error, match="there is no memory `sram`"):
        find_target(str(file))


def test_a_file_that_is_not_there(refused):
    assert "cannot read the target `none.toml`" in refused("compile", f"{NETS}:net", "--target", "none.toml")


def test_a_core_of_another_package_serves_a_target_file(install, tmp_path):
    core = Core("cortex-m35p", "thumbv8m.main-none-eabihf", ("dsp", "fp"), "hard")
    install("tosaic.cores", "their_cores", SimpleNamespace(CORE=core))
    file = tmp_path / "board.toml"
    text = AN386.read_text()
    before, _, after = text.partition("[core]")
    file.write_text(before.replace("name =", 'core = "cortex-m35p"\nname =') + after[after.index("[board]") :])
    assert find_target(str(file)).core == find_core("cortex-m35p") == core
    with pytest.raises(Error, match=r"there is no core `cortex-m35`\n  try: did you mean `cortex-m35p`\?"):
        find_core("cortex-m35")


THEIR_CORE = """\
from tosaic.backends.target import Core, Pipeline, Timing

SCALAR = ((r"(ldr|str)", Timing("load", 3, 3)), (r"", Timing("alu", 1, 1)))
PIPELINE = Pipeline(SCALAR, taken_branch=1, bytes_per_cycle=4)
CORE = Core("cortex-m35p", "thumbv8m.main-none-eabihf", ("dsp", "fp"), "hard", PIPELINE)
"""


def test_a_core_of_two_files_has_cycles_and_milliseconds(install, succeed, tmp_path, monkeypatch):
    (tmp_path / "their_core.py").write_text(THEIR_CORE)
    monkeypatch.syspath_prepend(tmp_path)
    install("tosaic.cores", "their_core", importlib.import_module("their_core"))
    board, text = tmp_path / "board.toml", (READY / "arm" / "cortex-m33.toml").read_text()
    board.write_text(text.replace("cortex-m33", "cortex-m35p"))
    succeed("compile", f"{NETS}:small", "--target", board, "-o", tmp_path / "theirs")
    succeed("compile", f"{NETS}:small", "--target", "cortex-m33", "-o", tmp_path / "ours")
    theirs, ours = (succeed("run", tmp_path / name, "--random", 1) for name in ("theirs", "ours"))
    assert theirs["exact"] and theirs["cycles"] > ours["cycles"]
    assert theirs["milliseconds"] == pytest.approx(theirs["cycles"] / 20_000)


def test_a_target_of_another_package(install):
    theirs = replace(find_target("cortex-m55"), name="theirs")
    install("tosaic.target_files.ready", "their_target", theirs)
    assert declarations()["theirs"].target is find_target("theirs") is theirs


def test_a_runner_of_another_package_runs_a_build(install, succeed, refused, tmp_path):
    class Remote(Qemu):
        name = "remote"
        ran: list[Path] = []  # noqa: RUF012

        def run(self, elf, files, **options) -> Execution:
            self.ran.append(elf)
            return super().run(elf, files, **options)

    install("tosaic.runners", "their_runner", SimpleNamespace(RUNNER=Remote))
    succeed("compile", f"{NETS}:net", "-o", tmp_path / "build")
    assert succeed("run", tmp_path / "build", "--random", 1, "--runner", "remote")["exact"]
    assert Remote.ran == [tmp_path / "build" / "model.elf"]
    message = refused("run", tmp_path / "build", "--random", 1, "--runner", "remot")
    assert "there is no runner `remot`\n  try: did you mean `remote`?" in message
