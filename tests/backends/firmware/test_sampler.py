"""The sampler of the kit, compiled for the host: draw by draw what its model in Python draws, and what it promises."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tosaic.backends.firmware import toolchain
from tosaic.runs.sampling import Sampler, Sampling
from tosaic.support.processes import run_tool
from tosaic.support.quantization import Quantization


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("bytes", ctypes.c_uint32), ("dtype", ctypes.c_char_p), ("rank", ctypes.c_uint32),
        ("shape", ctypes.c_uint32 * 6), ("scale", ctypes.c_float), ("zero_point", ctypes.c_int32),
    )  # fmt: skip


class _Sampler(ctypes.Structure):
    _fields_ = (
        ("temperature", ctypes.c_float), ("top_p", ctypes.c_float), ("top_k", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
    )  # fmt: skip


@pytest.fixture(scope="module")
def draws(tmp_path_factory):
    """`count` tokens that the C draws by the same scores."""
    library, kit = tmp_path_factory.mktemp("sampler") / "sampler.so", toolchain.SOURCES / "kit"
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{toolchain.SOURCES}"]
    run_tool("gcc", [*flags, kit / "tosaic_sampler.c", "-o", library])
    sample = ctypes.CDLL(str(library)).tosaic_sample
    sample.restype = ctypes.c_uint32

    def run(scores: np.ndarray, scale: float, sampling: Sampling, count: int) -> list[int]:
        shape = (ctypes.c_uint32 * 6)(1, scores.size)
        tensor = _Tensor(b"scores", scores.nbytes, str(scores.dtype).encode(), 2, shape, scale, 0)
        state = _Sampler(sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed)
        data = scores.ctypes.data_as(ctypes.c_void_p)
        return [sample(ctypes.byref(state), ctypes.byref(tensor), data) for _ in range(count)]

    return run


def _model(scores: np.ndarray, scale: float, sampling: Sampling, count: int) -> list[int]:
    kind = None if scores.dtype == np.float32 else Quantization.per_tensor(f"i{8 * scores.itemsize}", scale, 0)
    sampler = Sampler(sampling)
    return [sampler.sample(scores, kind) for _ in range(count)]


@st.composite
def _asked(draw):
    dtype = draw(st.sampled_from([np.int8, np.int16, np.float32]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = rng.normal(0, draw(st.floats(0.1, 60)), draw(st.integers(1, 70)))
    sampling = Sampling(
        draw(st.sampled_from([0.0, 0.01, 0.7, 1.0, 3.0, 1e30])),
        draw(st.integers(0, 80)),
        draw(st.sampled_from([0.0, 0.1, 0.9, 0.999, 1.0])),
        draw(st.integers(1, 2**32 - 1)),
    )
    return scores.astype(dtype), draw(st.sampled_from([1e-9, 0.01, 0.25, 1e6])), sampling


@settings(max_examples=300, deadline=None)
@given(_asked())
def test_the_model_draws_what_the_c_draws(draws, asked):
    scores, scale, sampling = asked
    assert draws(scores, scale, sampling, 5) == _model(scores, scale, sampling, 5)


def test_tokens_come_as_often_as_their_probability_says():
    scores, count = np.array([10, 30, 20, -40, 25], np.int8), 20_000
    drawn = np.bincount(_model(scores, 0.1, Sampling(1.5, seed=9), count), minlength=5) / count
    wanted = np.exp(scores * 0.1 / 1.5)
    assert np.abs(drawn - wanted / wanted.sum()).max() < 0.015


@pytest.mark.parametrize(
    ("limits", "kept"),
    [({"top_k": 2}, {1, 4}), ({"top_p": 0.5}, {1, 4}), ({"top_p": 0.0}, {1}), ({"top_k": 3, "top_p": 0.99}, {1, 2, 4})],
    ids=["top-k", "top-p", "none but the likeliest", "both"],
)
def test_only_the_likeliest_come(draws, limits, kept):
    scores = np.array([10, 30, 20, -40, 25], np.int8)
    assert set(draws(scores, 0.1, Sampling(1.0, seed=5, **limits), 300)) == kept


def test_tokens_as_likely_as_the_last_come_too(draws):
    assert set(draws(np.array([5, 9, 5, 0], np.int8), 0.1, Sampling(1.0, top_k=2), 300)) == {0, 1, 2}


def test_without_temperature_the_first_of_the_likeliest_comes(draws):
    for dtype in (np.int8, np.int16, np.float32):
        assert draws(np.array([1, 7, 3, 7], dtype), 0.1, Sampling(), 3) == [1, 1, 1]
