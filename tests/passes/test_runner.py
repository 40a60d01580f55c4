import io
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from tosaic.backends.reference import evaluate
from tosaic.passes import (
    ModulePass,
    PassTimes,
    VerifyEach,
    dump_ir,
    first_difference,
    parse_pipeline,
    print_ir,
    run_passes,
)
from tosaic.passes.rewrite import pattern, rewrite
from tosaic.support.errors import PassError
from tosaic.support.mlir import functions, ir, parse, walk

SOURCE = """
func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> {
  %0 = tosa.clamp %x {min_val = -10 : i8, max_val = 10 : i8} : (tensor<4xi8>) -> tensor<4xi8>
  %1 = tosa.clamp %0 {min_val = -5 : i8, max_val = 20 : i8} : (tensor<4xi8>) -> tensor<4xi8> loc("model.py":7:1)
  return %1 : tensor<4xi8>
}
"""


@dataclass(frozen=True)
class DropClamps(ModulePass):
    """Replaces a clamp by its operand, which is wrong."""

    name: ClassVar[str] = "drop-clamps"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [pattern("tosa.clamp")(lambda op: op.operands[0])])


@dataclass(frozen=True)
class Failing(ModulePass):
    """Changes the module, then fails."""

    name: ClassVar[str] = "failing"

    def run(self, module: ir.Module) -> None:
        DropClamps().run(module)
        raise PassError("no luck", where="model.py:7")


def test_one_callback_serves_all(tmp_path):
    module, stream, timing = parse(SOURCE), io.StringIO(), PassTimes()
    passes = parse_pipeline("fuse-clamp,mlir(cse)")
    run_passes(module, passes, [timing, dump_ir(tmp_path), print_ir(stream, before=["mlir"], after=["fuse-clamp"])])
    assert set(timing.seconds) == {"fuse-clamp", "mlir"}
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["00-fuse-clamp.mlir", "01-mlir-cse.mlir"]
    assert "// ---- after fuse-clamp ----" in stream.getvalue()
    assert "// ---- before mlir(cse) ----" in stream.getvalue()
    assert "before fuse-clamp" not in stream.getvalue()


def test_a_wrong_pass_is_named_with_the_first_element_that_differs(tmp_path):
    with pytest.raises(PassError) as caught:
        run_passes(parse(SOURCE), [DropClamps()], [VerifyEach(evaluate)], failures=tmp_path)
    assert "`drop-clamps` changed what the module computes" in str(caught.value)
    assert "output 0[0] was" in str(caught.value)


def test_a_failing_pass_saves_its_input_and_says_how_to_repeat(tmp_path):
    with pytest.raises(PassError) as caught:
        run_passes(parse(SOURCE), [Failing()], failures=tmp_path)
    saved = tmp_path / "before-failing.mlir"
    assert f"tosaic opt {saved} --pass-pipeline='failing'" in str(caught.value)
    assert "no luck" in str(caught.value)
    assert "model.py:7" in str(caught.value)
    assert sum(op.name == "tosa.clamp" for op in walk(parse(saved.read_text()))) == 2
    assert "model.py" in saved.read_text()


def test_an_upstream_failure_carries_its_diagnostics(tmp_path):
    with pytest.raises(PassError, match="tosaic opt"):
        run_passes(parse(SOURCE), parse_pipeline("mlir(no-such-pass)"), failures=tmp_path)


def test_new_ops_have_the_location_of_what_they_replace():
    module = parse(SOURCE)
    run_passes(module, parse_pipeline("fuse-clamp"))
    clamps = [op for op in walk(functions(module)["main"]) if op.name == "tosa.clamp"]
    assert len(clamps) == 1
    assert "model.py" in str(clamps[0].location)


def test_rules_without_a_fixpoint_are_named():
    @pattern("tosa.clamp")
    def forever(op):
        return op.clone().results[0]

    with pytest.raises(PassError, match="forever"):
        rewrite(parse(SOURCE), [forever])


def test_first_difference():
    a = np.array([[1, 2], [3, 4]], np.int8)
    assert first_difference([a], [a.copy()]) == ""
    assert first_difference([a], [a + np.int8(a == 3)]) == "output 0[1, 0] was 3 and is 4 (1 of 4 differ)"
    assert first_difference([a], []) == "1 outputs before, 0 after"
    assert "was int8[2, 2] and is int32[2, 2]" in first_difference([a], [a.astype(np.int32)])
    nan = np.array([np.nan], np.float32)
    assert first_difference([nan], [nan.copy()]) == ""


def test_subnormal_floats_are_as_good_as_zero():
    least = np.float32(2.0**-126)
    values = np.array([least, least / 2, -least / 4, 0, np.nan], np.float32)
    flushed = np.array([least, 0, -0.0, 0, np.nan], np.float32)
    assert first_difference([values], [flushed]) == ""
    assert first_difference([values], [np.where(values == least, 0, values)]).endswith("(1 of 5 differ)")
    assert first_difference([np.array([1], np.int32)], [np.array([0], np.int32)])
