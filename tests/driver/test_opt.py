"""opt: passes by name, what they print, what they save, and passes that a newcomer or another package adds."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import NETS
from drop_in import describe

from tosaic.backends.reference import evaluate
from tosaic.passes import PASSES, random_inputs
from tosaic.support import discovery
from tosaic.support.mlir import parse, walk

CLAMPS = """\
func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> {
  %0 = tosa.clamp %x {min_val = -10 : i8, max_val = 10 : i8} : (tensor<4xi8>) -> tensor<4xi8> loc("net.py":7:1)
  %1 = tosa.clamp %0 {min_val = -5 : i8, max_val = 20 : i8} : (tensor<4xi8>) -> tensor<4xi8> loc("net.py":8:1)
  return %1 : tensor<4xi8>
}
"""

PASS = '''\
"""A clamp is dropped where nobody asked for it."""

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.rewrite import pattern, rewrite
from tosaic.support.errors import PassError


@register
@dataclass(frozen=True)
class DropClamps(ModulePass):
    """Replace a clamp by its operand, which is wrong."""

    name: ClassVar[str] = "drop-clamps"
    phase: ClassVar[str] = "fuse"
    fail: bool = False

    def run(self, module):
        if self.fail:
            raise PassError("no luck today", where="net.py:7")
        rewrite(module, [drop])


@pattern("tosa.clamp")
def drop(op):
    return op.operands[0]
'''


@pytest.fixture
def clamps(tmp_path) -> Path:
    file = tmp_path / "clamps.mlir"
    file.write_text(CLAMPS)
    return file


@pytest.fixture
def new_pass(tmp_path, monkeypatch):
    """A pass in one new file in a folder of `tosaic.passes`, and nothing else touched."""
    from tosaic import passes

    folder = tmp_path / "newcomer"
    folder.mkdir()
    (folder / "drop_clamps.py").write_text(PASS)
    monkeypatch.setattr(passes, "__path__", [*passes.__path__, str(folder)])
    monkeypatch.setattr(PASSES, "_known", dict(PASSES.known()))
    monkeypatch.setattr(PASSES, "_complete", False)
    discovery.modules_of.cache_clear()
    yield
    discovery.modules_of.cache_clear()
    sys.modules.pop("tosaic.passes.drop_clamps", None)


def names(text: str) -> list[str]:
    module = parse(text)
    return [op.name for op in walk(module)]


def test_list_passes(succeed, tosaic):
    listed = succeed("opt", "--list-passes")
    phases = [phase["name"] for phase in listed["phases"]]
    assert phases == ["legalize", "quantize", "layout", "fuse", "cpu", "npu", "place"]
    assert all(phase["passes"] for phase in listed["phases"])
    summaries = {row["name"]: row["summary"] for row in listed["passes"]}
    assert summaries["fuse-clamp"] == "Fold a clamp into the clamp that feeds it."
    assert all(summaries.values())
    assert "fuse-clamp" in tosaic("opt", "--list-passes").stdout


def test_a_pipeline_on_text(tosaic, clamps):
    result = tosaic("opt", clamps, "--pass-pipeline", "fuse-clamp,mlir(cse)")
    assert result.exit_code == 0 and result.stderr == ""
    assert names(result.stdout).count("tosa.clamp") == 1
    assert "net.py" in result.stdout


def test_output_goes_to_a_file(tosaic, clamps, tmp_path):
    result = tosaic("opt", clamps, "--pass-pipeline", "fuse", "-o", tmp_path / "out.mlir")
    assert result.exit_code == 0 and result.stdout == ""
    assert names((tmp_path / "out.mlir").read_text()).count("tosa.clamp") == 1


def test_printed_ir_and_times_go_to_stderr(tosaic, clamps):
    result = tosaic(
        "opt", clamps, "--pass-pipeline", "fuse-clamp,mlir(cse)", "--print-ir-after", "fuse-clamp",
        "--print-ir-before", "mlir", "--time-passes",
    )  # fmt: skip
    assert "// ---- after fuse-clamp ----" in result.stderr and "// ---- before mlir(cse) ----" in result.stderr
    assert "// ---- before fuse-clamp" not in result.stderr and "// ----" not in result.stdout
    assert "ms" in result.stderr and result.stderr.count("%  fuse-clamp") == 1
    everything = tosaic("opt", clamps, "--pass-pipeline", "fuse-clamp", "--print-ir-after", "*")
    assert "// ---- after fuse-clamp ----" in everything.stderr


def test_save_ir_can_be_fed_back(tosaic, clamps, tmp_path):
    tosaic("opt", clamps, "--pass-pipeline", "fuse-clamp,mlir(cse)", "--save-ir", tmp_path / "ir")
    first, second = sorted((tmp_path / "ir").iterdir())
    assert (first.name, second.name) == ("00-fuse-clamp.mlir", "01-mlir-cse.mlir")
    assert tosaic("opt", first, "--pass-pipeline", "mlir(cse)").exit_code == 0


def test_verify_each_lets_a_right_pass_through(tosaic, clamps):
    assert tosaic("opt", clamps, "--pass-pipeline", "fuse", "--verify-each").exit_code == 0


def test_a_new_file_is_a_new_pass(new_pass, succeed, tosaic, clamps):
    rows = {row["name"]: row["summary"] for row in succeed("opt", "--list-passes")["passes"]}
    assert rows["drop-clamps"] == "Replace a clamp by its operand, which is wrong."
    assert "tosa.clamp" not in names(tosaic("opt", clamps, "--pass-pipeline", "drop-clamps").stdout)


def test_a_new_pass_may_join_a_phase(new_pass, succeed, tosaic, clamps):
    phases = {phase["name"]: phase["passes"] for phase in succeed("opt", "--list-passes")["phases"]}
    assert "drop-clamps" in phases["fuse"][:-2] and "drop-clamps" not in phases["layout"]
    assert "tosa.clamp" not in names(tosaic("opt", clamps, "--pass-pipeline", "fuse").stdout)


def test_verify_each_catches_a_wrong_pass(new_pass, refused, clamps):
    message = refused("opt", clamps, "--pass-pipeline", "fuse-clamp,drop-clamps", "--verify-each")
    assert "`drop-clamps` changed what the module computes" in message
    assert "output 0[" in message and "was" in message


def test_verify_each_of_a_compilation_catches_a_wrong_pass(new_pass, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "newcomer" / "drop_clamps.py").write_text(PASS.replace("tosa.clamp", "tosa.add"))
    message = refused("compile", f"{NETS}:sum_of_two", "--verify-each", "-o", tmp_path / "build")
    assert "`drop-clamps` changed what the module computes" in message
    assert not (tmp_path / "build").exists()


def test_a_failing_pass_prints_the_command_that_repeats_it(new_pass, refused, clamps, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    message = refused("opt", clamps, "--pass-pipeline", "fuse-clamp,drop-clamps{fail=true}")
    assert "no luck today" in message and "at: net.py:7" in message
    command = message[message.index("tosaic opt") :].split()
    saved, pipeline = command[2], command[3].removeprefix("--pass-pipeline=").strip("'")
    assert pipeline == "drop-clamps{fail=true}"
    assert "no luck today" in refused("opt", saved, "--pass-pipeline", pipeline)
    assert "net.py" in Path(saved).read_text()


def test_a_new_file_that_does_not_import_is_named(new_pass, refused, tmp_path):
    (tmp_path / "newcomer" / "broken.py").write_text("import no_such_module\n")
    message = refused("opt", "--list-passes")
    assert "the extension `tosaic.passes.broken` does not import" in message and "no_such_module" in message


def test_an_installed_package_adds_a_pass_by_its_entry_point(tmp_path):
    """In a process of its own: a distribution on the path, as pip leaves it."""
    (tmp_path / "theirs.py").write_text(PASS)
    describe("theirs", "[tosaic.passes]\ndrop-clamps = theirs:DropClamps\n", tmp_path)
    code = textwrap.dedent("""
        from tosaic.passes import parse_pipeline
        print(*parse_pipeline("drop-clamps{fail=true}"))
    """)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path
    )
    assert done.stdout == "drop-clamps{fail=true}\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "tosaic opt module.mlir --pass-pipeline=PASSES"),
        (("absent.mlir",), "cannot read `absent.mlir`"),
    ],
)
def test_files_that_are_not_there(refused, arguments, words):
    assert words in refused("opt", *arguments)


def test_text_that_is_no_mlir(refused, tmp_path):
    (tmp_path / "bad.mlir").write_text("func.func @main(\n")
    assert "this is not valid MLIR" in refused("opt", tmp_path / "bad.mlir")


def test_an_output_that_cannot_be_written(refused, clamps, tmp_path):
    assert "cannot write" in refused("opt", clamps, "-o", tmp_path / "absent" / "out.mlir")


def test_what_opt_prints_means_the_same(tosaic, clamps):
    module, printed = parse(CLAMPS), tosaic("opt", clamps, "--pass-pipeline", "fuse").stdout
    (x,) = random_inputs(module, 0)
    assert (evaluate(module, [x])[0] == evaluate(parse(printed), [x])[0]).all()
