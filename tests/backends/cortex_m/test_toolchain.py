"""Compiling kernels: failures stay apart, nothing is compiled twice."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import mve_layers
import numpy as np
import pytest

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m import toolchain
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.kernels.matmul import Matmul
from tosaic.backends.cortex_m.toolchain import compile_kernels
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Schedule


def _store(symbol: str, value: int = 1) -> KernelSource:
    return KernelSource(
        symbol,
        "mlir",
        f"""func.func @{symbol}(%out: memref<1xi32>, %params: memref<0xi8>, %scratch: memref<0xi8>)
        attributes {{llvm.bareptr}} {{
          %zero = arith.constant 0 : index
          %value = arith.constant {value} : i32
          memref.store %value, %out[%zero] : memref<1xi32>
          return
        }}""",
    )


def _defined(objects) -> set[str]:
    listing = subprocess.run(["llvm-nm-22", "--defined-only", *objects], capture_output=True, text=True).stdout
    return {line.split()[-1] for line in listing.splitlines() if " T " in line or " W " in line}


def test_one_bad_kernel_does_not_stop_the_others(tmp_path):
    sources = [
        *(_store(f"good_{i}", i) for i in range(5)),
        KernelSource("bad_mlir", "mlir", "func.func @bad_mlir() { nonsense }"),
        KernelSource("bad_c", "c", "void bad_c(void) { return 1 +; }"),
        KernelSource("left", "mlir", "func.func @left(%t: tensor<4xi8>) attributes {llvm.bareptr} { return }"),
        KernelSource("good_c", "c", "#include <arm_mve.h>\n#include <string.h>\nvoid good_c(void) {}"),
    ]
    made = compile_kernels(sources, CORTEX_M55, tmp_path)
    assert set(made.errors) == {"bad_mlir", "bad_c", "left"}
    assert "nonsense" in made.errors["bad_mlir"]
    assert "expected expression" in made.errors["bad_c"]
    assert "func.func" in made.errors["left"]
    assert _defined(made.objects) == {"good_0", "good_1", "good_2", "good_3", "good_4", "good_c"}


def test_a_block_that_takes_nearly_all_registers_compiles(tmp_path, monkeypatch):
    """clang orders the code around it so that too few are left; in the order in which it is written it fits."""
    many_registers = KernelSource("many_registers", "c", Path(__file__).with_name("many_registers.c").read_text())
    made = compile_kernels([many_registers, _store("other")], CORTEX_M55, tmp_path / "made")
    assert not made.errors and _defined(made.objects) == {"many_registers", "other"}
    again = compile_kernels([many_registers], CORTEX_M55, tmp_path / "made")
    assert set(again.objects) < set(made.objects)
    monkeypatch.setattr(toolchain, "_AS_WRITTEN", ())
    assert (
        "requires more registers"
        in compile_kernels([many_registers], CORTEX_M55, tmp_path / "refused").errors["many_registers"]
    )


def test_blocks_of_a_loop_of_two_iterations_lie_once(tmp_path):
    """Two blocks of columns, for each of which there are several hardware loops."""
    layer, family = mve_layers.matmul(np.random.default_rng(0), 1, 2, 8, 128, transposed=True), Matmul()
    variant = layer.space(family).variant("in_place")
    assert variant is not None
    knobs = {**{name: choices[0] for name, choices in variant.knobs.items()}, "block": 64, "share": 2}
    source = family.generate(layer.workload(family), Schedule.of(variant.name, **knobs), CORTEX_M55)
    (made,) = compile_kernels([source], CORTEX_M55, tmp_path).objects
    listing = subprocess.run(["llvm-objdump-22", "-d", made], capture_output=True, text=True, check=True).stdout
    assert len(re.findall(r"\bdls\b", listing)) == source.text.count("dls lr") > 1


def test_what_is_in_the_folder_is_not_compiled_again(tmp_path, monkeypatch):
    first = compile_kernels([_store("a"), _store("b", 2)], CORTEX_M55, tmp_path)
    monkeypatch.setattr(toolchain, "_compile_group", lambda *_: pytest.fail("compiled again"))
    assert compile_kernels([_store("b", 2)], CORTEX_M55, tmp_path).objects == first.objects
    monkeypatch.undo()
    assert compile_kernels([_store("a", 3)], CORTEX_M55, tmp_path).objects != first.objects


def test_clang_that_does_not_end_is_an_error_of_that_kernel(tmp_path):
    made = compile_kernels([_store("slow")], CORTEX_M55, tmp_path, seconds=0.001)
    assert "more than 0.001 s" in made.errors["slow"]
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("value", [0.0507986955, -1.0e-7, 3.4028235e38, 1.17549435e-38, 1.5, 123456.789])
def test_a_float_constant_keeps_its_bits(tmp_path, value):
    single = float(np.float32(value))
    text = f"""func.func @scale(%out: memref<1xf32>, %params: memref<0xi8>, %scratch: memref<0xi8>)
        attributes {{llvm.bareptr}} {{
          %zero = arith.constant 0 : index
          %factor = arith.constant {single!r} : f32
          %x = memref.load %out[%zero] : memref<1xf32>
          %y = arith.mulf %x, %factor : f32
          memref.store %y, %out[%zero] : memref<1xf32>
          return
        }}"""
    source = KernelSource("scale", "mlir", text)
    assert f", 0x{struct.pack('>d', single).hex().upper()}" in toolchain.llvm_ir([source])
    assert not compile_kernels([source], CORTEX_M55, tmp_path).errors


def test_two_kernels_of_one_name_are_refused(tmp_path):
    with pytest.raises(BackendError, match="two different kernels are called `same`"):
        compile_kernels([_store("same", 1), _store("same", 2)], CORTEX_M55, tmp_path)


def test_a_missing_clang_is_named(tmp_path, monkeypatch):
    toolchain.clang_version.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match=r"`clang-22` .* not installed\n  try: apt-get install clang-22"):
        toolchain.clang_version()
