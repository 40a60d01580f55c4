"""Files that Vela compiled for LiteRT: regions on the emulator beside answers of its reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from compiled_by_vela import FILES, compiled

from tosaic.backends.ethos_u.compiled_file import read_compiled_file
from tosaic.runs.npu_verified import Arrays, read_compiled, run_compiled
from tosaic.support.errors import BackendError, Error


def recorded(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Samples, and LiteRT's answers."""
    with np.load(FILES / f"{name}.npz") as arrays:
        x, y = (arrays[next(key for key in arrays.files if key.startswith(first))] for first in "xy")
    return x, y


def no_core(number: int, inputs: object) -> Arrays:
    raise AssertionError("an op is left to the core")


@pytest.mark.parametrize(
    ("name", "accelerator"),
    [
        ("softmax_i16", "ethos-u55-128"),
        ("softmax_i16", "ethos-u85-256"),
        ("conv", "ethos-u65-512"),
        ("op_bilinear_corners", "ethos-u85-256"),
    ],
)
def test_regions_equal_litert(name, accelerator, tmp_path):
    file = read_compiled(compiled(name, accelerator, tmp_path))
    assert [step.region.accelerator for step in file.steps if step.region] == [accelerator]
    for x, y in zip(*recorded(name), strict=True):
        np.testing.assert_array_equal(run_compiled(file, [x], no_core)[0], y)


def test_ops_of_the_core_run_between_regions(tmp_path):
    file = read_compiled(compiled("hotword", "ethos-u55-128", tmp_path))
    assert [step.op for step in file.steps] == ["SVDF", "SVDF", "ethos-u"]
    asked = list[int]()

    def zeros(number: int, inputs: object) -> Arrays:
        asked.append(number)
        (result,) = file.steps[number].outputs
        return [np.zeros(file.values[result].shape, file.values[result].dtype)]

    (value,) = file.inputs
    run_compiled(file, [np.zeros(file.values[value].shape, file.values[value].dtype)], zeros)
    assert asked == [0, 1]


def test_a_tensor_that_nothing_makes_is_named(tmp_path):
    file = read_compiled(compiled("op_lstm", "ethos-u55-128", tmp_path))
    inputs = [np.zeros(file.values[value].shape, file.values[value].dtype) for value in file.inputs]
    with pytest.raises(Error, match="nothing makes the tensor `lstm_1"):
        run_compiled(file, inputs, no_core)


def test_a_damaged_file_is_refused_in_one_line(tmp_path):
    content = compiled("conv", "ethos-u55-128", tmp_path).read_bytes()
    draw, refused = np.random.default_rng(0), 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[draw.integers(8, len(content))] ^= 1 << draw.integers(8)
        file = tmp_path / "damaged.tflite"
        file.write_bytes(damaged)
        try:
            read_compiled_file(file)
        except BackendError as error:
            refused += 1
            assert "damaged" in error.why
    assert refused > 5


def test_other_files_have_no_region(tmp_path):
    with pytest.raises(Error, match="has no NPU region"):
        read_compiled(FILES / "conv.tflite")
    with pytest.raises(Error, match="cannot read"):
        read_compiled(tmp_path / "none.tflite")
