"""Files of TensorFlow Lite as they are published; `tflite/*.npz` holds what LiteRT's reference kernels made of them.

`python benchmarks/tflite_gallery.py --record` writes files and answers anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tosaic.backends.reference import evaluate, evaluate_each, evaluate_in_turn
from tosaic.compiler.accuracy import interface_quantizations
from tosaic.frontend import read_tosa
from tosaic.passes import run_phases
from tosaic.support.errors import ModelError
from tosaic.support.functions import body_of, returned
from tosaic.support.mlir import constant_value, functions, shape_of, walk
from tosaic.support.quantization import Quantization

FILES = Path(__file__).parent / "tflite"
INTEGERS = (
    "op_abs", "op_arg_max", "op_arg_min", "op_bilinear", "op_bilinear_centers", "op_bilinear_corners", "op_dense",
    "op_exp", "op_greater", "op_logistic", "op_lstm", "op_lstm_looking", "op_lstm_projected", "op_matmul",
    "op_nearest", "op_nearest_centers", "op_nearest_corners", "op_quantize", "op_quantize_uint8", "op_reverse",
    "op_tanh", "op_tanh_power", "hotword", "wake_word",
)  # fmt: skip
FLOATS = ("op_gelu", "op_gelu_tanh", "op_lstm_real", "op_svdf_real")


def test_an_open_batch_is_one_and_names_and_scales_are_the_files():
    file = read_tosa(FILES / "fc_batch.tflite")
    main = functions(file.module)["main"]
    assert (file.input_names, file.output_names) == (["x"], ["StatefulPartitionedCall"])
    (x,), (y,) = body_of(main).arguments, returned(main)
    assert (shape_of(x), shape_of(y)) == ((1, 16), (1, 8))
    run_phases(file.module)
    main = functions(file.module)["main"]
    taken = interface_quantizations(main, "arg_attrs", list(body_of(main).arguments))
    given = interface_quantizations(main, "res_attrs", returned(main))
    assert taken == [Quantization.per_tensor("i8", float(np.float32(0.05)), -3)]
    assert given == [Quantization.per_tensor("i8", float(np.float32(0.1)), 5)]


def test_a_shape_is_given():
    four, one = (read_tosa(FILES / "fc_batch.tflite", shapes) for shapes in ({"x": [4, 16]}, {}))
    for file in (four, one):
        run_phases(file.module)
    x = np.random.default_rng(0).integers(-128, 127, (4, 16), np.int8, endpoint=True)
    rows = [evaluate(one.module, [row[None]])[0] for row in x]
    np.testing.assert_array_equal(evaluate(four.module, [x])[0], np.concatenate(rows))


def test_a_shape_is_given_to_ops_of_our_own():
    four, one = (read_tosa(FILES / "op_open.tflite", shapes) for shapes in ({"open_0": [3, 4, 5]}, {}))
    x = np.linspace(-9, 9, 60, dtype=np.float32).reshape(3, 4, 5)
    run_phases(four.module)
    run_phases(one.module)
    rows = [evaluate(one.module, [row[None]])[0] for row in x]
    np.testing.assert_array_equal(evaluate(four.module, [x])[0], np.concatenate(rows))


def test_a_damaged_file_is_refused(tmp_path):
    """A zero point that no int8 has."""
    before, after = (-9).to_bytes(8, "little", signed=True), (2**35).to_bytes(8, "little")
    path = tmp_path / "damaged.tflite"
    path.write_bytes((FILES / "op_lstm.tflite").read_bytes().replace(before, after))
    with pytest.raises(ModelError, match="cannot be read") as error:
        read_tosa(path)
    assert "it is damaged" in str(error.value.why)


@pytest.mark.parametrize(
    "shapes, what", [({"y": [4, 16]}, "there is no input `y`"), ({"x": [16]}, r"the input `x` has the shape \[1, 16\]")]
)
def test_a_shape_that_does_not_fit_is_refused(shapes, what):
    with pytest.raises(ModelError, match=what):
        read_tosa(FILES / "fc_batch.tflite", shapes)


def test_weights_of_f16_are_constants():
    file = read_tosa(FILES / "fc_f16.tflite")
    run_phases(file.module)
    assert {op.name for op in walk(file.module)}.isdisjoint({"tosa.cast", "tosa.mul"})
    (y,) = evaluate(file.module, [np.ones((1, 16), np.float32)])
    assert np.isfinite(y).all() and y.any()


def test_weights_of_int8_stay_int8_beside_floats():
    """So LiteRT multiplies them: by integers of the range that it finds in each input."""
    file = read_tosa(FILES / "fc_hybrid.tflite")
    constants = [constant_value(op.results[0]) for op in walk(file.module) if op.name == "tosa.const"]
    assert [one.dtype for one in constants if one is not None and one.size == 8 * 16] == [np.int8]
    expected, got = _in_turn("fc_hybrid")
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_an_input_of_zeros_has_a_range():
    file = read_tosa(FILES / "fc_hybrid.tflite")
    run_phases(file.module)
    (y,) = evaluate(file.module, [np.zeros((1, 16), np.float32)])
    assert np.isfinite(y).all()


@pytest.mark.parametrize("name, twice", [("conv", 1), ("fc", 0), ("mean", 1), ("softmax_i16", 0)])
def test_rounding_of_tflite_is_that_of_its_reference_kernels(name, twice):
    """Their FULLY_CONNECTED rounds once, all else twice."""
    expected = np.load(FILES / f"{name}.npz")
    file = read_tosa(FILES / f"{name}.tflite", rounding="tflite")
    assert str(file.module).count("DOUBLE_ROUND") == twice and file.warnings == ()
    run_phases(file.module)
    assert "DOUBLE_ROUND" not in str(file.module)
    got = [outputs[0] for outputs in evaluate_each(file.module, [[x] for x in expected["x"]])]
    np.testing.assert_array_equal(got, expected["y"])


@pytest.mark.parametrize("name", INTEGERS)
def test_ops_are_those_of_the_reference_kernels_to_the_bit(name):
    """Calls one behind the other: what an op keeps, it keeps from call to call."""
    expected, got = _in_turn(name)
    assert len(np.unique(expected)) > 4
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", FLOATS)
def test_float_ops_are_those_of_the_reference_kernels(name):
    expected, got = _in_turn(name)
    np.testing.assert_allclose(got, expected, rtol=0, atol=5e-7)


def _in_turn(name: str) -> tuple[np.ndarray, np.ndarray]:
    """What LiteRT's kernels gave for the calls of a file with one result, and what its module gives."""
    recorded = np.load(FILES / f"{name}.npz")
    columns = [recorded[key] for key in sorted(recorded.files) if key.startswith("x")]
    file = read_tosa(FILES / f"{name}.tflite", rounding="tflite")
    run_phases(file.module)
    calls = evaluate_in_turn(file.module, list(zip(*map(_signed, columns), strict=True)), file.states)
    return _signed(recorded["y0"]), np.stack([given[0] for _, given in calls])


def _signed(array: np.ndarray) -> np.ndarray:
    return (array.astype(np.int16) - 128).astype(np.int8) if array.dtype == np.uint8 else array


def test_states_are_what_litert_has_before_the_first_call():
    file = read_tosa(FILES / "op_lstm.tflite")
    assert file.input_names[1:] == ["unidirectional_sequence_lstm_0_18", "unidirectional_sequence_lstm_0_19"]
    output, cell = file.states
    assert output.tolist() == [[-9] * 6] and cell.tolist() == [[0] * 6]


def test_states_are_those_of_one_sequence():
    with pytest.raises(ModelError, match="cannot be compiled") as error:
        read_tosa(FILES / "op_lstm.tflite", {"lstm_0": [2, 3, 5]})
    assert "its states are those of 1 sequences, and 2 are given" in str(error.value.why)


def test_rounding_once_is_a_step_apart_at_most_and_said():
    expected = np.load(FILES / "conv.npz")
    file = read_tosa(FILES / "conv.tflite")
    (warning,) = file.warnings
    assert warning.what == "1 rescales round once, where TensorFlow Lite rounds twice"
    assert "--rounding tflite" in warning.hint
    got = np.array([outputs[0] for outputs in evaluate_each(file.module, [[x] for x in expected["x"]])])
    assert np.abs(got.astype(int) - expected["y"]).max() == 1


@pytest.mark.parametrize(
    "name, what, hint",
    [
        ("vela", "has been compiled by Vela already", "give the file that Vela was given"),
        ("custom", "holds custom ops: `MyOp`", "end the model before them"),
        (
            "log_softmax",
            "has no TOSA for: `LOG_SOFTMAX`",
            "write the model without them",
        ),
        ("op_lstm_both", "the op `UNIDIRECTIONAL_SEQUENCE_LSTM` cannot be compiled", "write the layer without it"),
    ],
)
def test_what_has_no_tosa_is_refused_by_name(name, what, hint):
    with pytest.raises(ModelError, match=what) as error:
        read_tosa(FILES / f"{name}.tflite")
    assert hint in error.value.hint
