"""A fixed sample of ONNX's node tests; `benchmarks/onnx_nodes.py` runs all of them."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx", reason="it makes the tests")

from benchmarks.onnx_nodes import generate, trial

MODULES = ("attention", "castlike", "cumsum", "dft", "dropout", "gather", "gru", "layernormalization", "pad", "resize",
           "scatternd", "sequence_map", "slice", "split", "topk")  # fmt: skip
LOWERED = (
    "test_attention_4d_causal_expanded",
    "test_dft_inverse",
    "test_gru_defaults",
    "test_layer_normalization_3d_axis1_epsilon_expanded",
    "test_constant_pad_axes",
    "test_resize_downsample_scales_cubic_antialias",
    "test_scatternd_add",
    "test_slice_neg_steps",
    "test_top_k",
)
REFUSED = {
    "test_castlike_FLOAT_to_FLOAT8E5M2_expanded": "elements of type float8_e5m2, which no target",
    "test_sequence_map_add_1_sequence_1_tensor": "the input `x0` is no tensor",
    "test_training_dropout": "it drops elements at random",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("nodes")
    generate(made, MODULES)
    return made


@pytest.mark.parametrize("name", LOWERED)
def test_a_node_lowers_right(folder, name):
    outcome = trial(folder / f"{name}.onnx")
    assert (outcome.kind, outcome.int8) == ("ok", "ok"), outcome


@pytest.mark.parametrize("name", REFUSED)
def test_a_node_is_refused_by_name(folder, name):
    outcome = trial(folder / f"{name}.onnx")
    assert (outcome.kind, outcome.int8) == ("refused", "refused") and REFUSED[name] in outcome.detail


def test_shapes_that_are_inputs_are_noted(folder):
    assert trial(folder / "test_slice.onnx").fixed == ("starts", "ends", "axes", "steps")
