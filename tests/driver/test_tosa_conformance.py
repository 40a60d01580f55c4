"""A slice of TOSA's conformance tests; `benchmarks/tosa_conformance.py` runs them all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tosa_conformance import Case, cases_in, chosen, generate, trial
from tosaic.backends.reference import serialize

_LARGEST = 1 << 16

CONVOLUTION = """
func.func @main(%x: tensor<1x6x5x2x{x}>, %w: tensor<4x3x3x2x{w}>, %b: tensor<4x{sum}>) -> tensor<1x4x3x4x{sum}> {{
  %xz = "tosa.const"() <{{values = dense<0> : tensor<1x{x}>}}> : () -> tensor<1x{x}>
  %wz = "tosa.const"() <{{values = dense<0> : tensor<1x{w}>}}> : () -> tensor<1x{w}>
  %0 = tosa.conv2d %x, %w, %b, %xz, %wz
    {{acc_type = {sum}, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>}}
    : (tensor<1x6x5x2x{x}>, tensor<4x3x3x2x{w}>, tensor<4x{sum}>, tensor<1x{x}>, tensor<1x{w}>)
    -> tensor<1x4x3x4x{sum}>
  return %0 : tensor<1x4x3x4x{sum}>
}}
"""
UNSIGNED = """
func.func @main(%x: tensor<256xi8>) -> (tensor<256xi16>, tensor<256xi8>) {
  %m = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %u = "tosa.const"() <{values = dense<-120> : tensor<1xi8>}> : () -> tensor<1xi8>
  %z = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %i = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
  %0 = tosa.rescale %x, %m, %s, %u, %i {input_unsigned = true, output_unsigned = false, per_channel = false,
    rounding_mode = SINGLE_ROUND, scale32 = true}
    : (tensor<256xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi16>) -> tensor<256xi16>
  %1 = tosa.rescale %0, %m, %s, %i, %z {input_unsigned = false, output_unsigned = true, per_channel = false,
    rounding_mode = SINGLE_ROUND, scale32 = true}
    : (tensor<256xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi8>) -> tensor<256xi8>
  return %0, %1 : tensor<256xi16>, tensor<256xi8>
}
"""


def written(folder: Path, text: str, inputs: list[np.ndarray], results: int, op: str) -> Case:
    """A test in the generator's layout."""
    folder.mkdir()
    (folder / "test.tosa").write_bytes(serialize(text))
    for number, array in enumerate(inputs):
        np.save(folder / f"input-{number}.npy", array)
    description = {
        "tosa_file": "test.tosa",
        "ifm_name": [f"TosaInput_{i}" for i in range(len(inputs))],
        "ifm_file": [f"input-{i}.npy" for i in range(len(inputs))],
        "ofm_name": [f"TosaOutput_{i}" for i in range(results)],
        "ofm_file": [f"result-{i}.npy" for i in range(results)],
        "test_details": {"operator": op},
    }
    (folder / "desc.json").write_text(json.dumps(description))
    return Case(folder)


def convolution(folder: Path, x: str, w: str, sums: str) -> Case:
    """All three operands are inputs, the sums an output."""
    rng = np.random.default_rng(0)
    bits, kinds = {"i4": 4, "i8": 8, "i16": 16}, {"i32": np.int32, "i48": np.int64}
    shapes = {x: (1, 6, 5, 2), w: (4, 3, 3, 2)}
    operands = [
        rng.integers(1 - 2 ** (bits[k] - 1), 2 ** (bits[k] - 1), shapes[k]).astype(np.int16 if k == "i16" else np.int8)
        for k in (x, w)
    ]
    bias = rng.integers(-(2**20), 2**20, 4).astype(kinds[sums])
    return written(folder, CONVOLUTION.format(x=x, w=w, sum=sums), [*operands, bias], 1, "CONV2D")


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> list[Case]:
    folder = tmp_path_factory.mktemp("conformance")
    generate(folder, ["clz"])
    return cases_in(folder)


def test_what_the_generator_makes_is_exact(generated):
    small = [test for test in chosen(generated, "clz", None, 0) if test.bytes < _LARGEST]
    assert len(small) > 5 and {test.kind for test in small} > {"clz i32 1", "clz i32 6"}
    assert trial(small).kind == "exact"


def test_a_sample_holds_each_rank_once(generated):
    sample = chosen(generated, "c.z", 1, 0)
    assert [test.kind for test in sample] == sorted({test.kind for test in generated})
    assert chosen(generated, "abs", 1, 0) == []


def test_odd_widths_and_bytes_at_the_edges_are_exact(tmp_path):
    tests = [
        convolution(tmp_path / "i4", "i8", "i4", "i32"),
        convolution(tmp_path / "i48", "i16", "i8", "i48"),
        written(tmp_path / "bytes", UNSIGNED, [np.arange(-128, 128, dtype=np.int8)], 2, "RESCALE"),
    ]
    outcome = trial(tests)
    assert outcome.kind == "exact", outcome
    np.save(tmp_path / "i4" / "result-0.npy", tests[0].expected[0] + 1)
    outcome = trial(tests[:1])
    assert (outcome.kind, outcome.fault) == ("differs", True) and "48 of 48 differ" in outcome.detail
