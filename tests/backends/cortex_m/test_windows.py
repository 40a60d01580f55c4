"""Depthwise convolutions as nests of windows: traces, golden C, and what the verifier refuses."""

from __future__ import annotations

import mve_layers
import numpy as np
import pytest
from golden_files import assert_golden
from slow_memory import SLOW_MEMORY

from tosaic.backends.cores.cortex_m55 import CORE, PIPELINE
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels import depthwise_i16
from tosaic.backends.cortex_m.kernels.depthwise_i16 import DepthwiseI16
from tosaic.backends.cortex_m.nest.joins import Code, LaneAccess
from tosaic.backends.cortex_m.nest.nest import parse_trace, print_trace
from tosaic.backends.cortex_m.nest.windows import placed, scheduled
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Schedule, Space

UNROLLED = {"ahead": 0, "columns": 1, "issue": "best", "once": "weights", "rows": 1, "weights": "params"}


def _depthwise():
    return mve_layers.depthwise_i16(np.random.default_rng(0), (1, 6, 5, 16), (3, 3), pad=(1, 1, 1, 1))


def test_a_trace_prints_parses_and_replays_to_the_same_nest():
    what = depthwise_i16._windows(_depthwise().workload(DepthwiseI16()))
    kernel = scheduled(what, Schedule.of("unrolled", **{**UNROLLED, "rows": 2}), PIPELINE)
    text = print_trace(kernel.nest.trace)
    assert "turn(out, c)" in text
    stages = {loop.axis: loop.extent for loop in kernel.nest.stages["out"] if loop.name == loop.axis}
    assert stages == {"y": 6, "x": 5, "c": 16, "ky": 3, "kx": 3}
    assert what.nest.replay(parse_trace(text)) == kernel.nest


def test_the_c_of_one_depthwise_convolution_stays_what_it_is():
    schedule = Schedule.of("unrolled", **{**UNROLLED, "rows": 2})
    source = _depthwise().case(DepthwiseI16(), schedule).source
    assert_golden("depthwise_conv2d_i16.c", source, "INLINE void tile")


def test_accesses_in_reach_share_a_position_of_their_pointer():
    code: Code = [LaneAccess("vldrb.u8", f"v{at}", "p0", at, 127) for at in (0, 100, 400)]
    instructions, bases = placed(code, {"p": 16})
    assert [f"{i.mnemonic} {i.operands}" for i in instructions] == [
        "vldrb.u8 {v0}, [{p0}, #-100]",
        "vldrb.u8 {v100}, [{p0}, #0]",
        "addw {p0}, {p0}, #300",
        "vldrb.u8 {v400}, [{p0}, #0]",
        "subw {p0}, {p0}, #284",
    ]
    assert bases == {"p0": 100}


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"rows": 2, "columns": 2}, "2 x 2 outputs need 11 vector registers"),
        ({"rows": 7}, "`y` of 6 cannot be split by 7"),
    ],
    ids=str,
)
def test_the_verifier_says_what_is_illegal_in_a_depthwise_convolution(knobs, message):
    with pytest.raises(BackendError, match=message):
        _depthwise().case(DepthwiseI16(), Schedule.of("unrolled", **{**UNROLLED, **knobs}))


def test_the_guess_copies_weights_out_of_a_slow_memory_where_there_is_room():
    layer = mve_layers.depthwise_i16(np.random.default_rng(0), (1, 16, 16, 16), (3, 3), pad=(1, 1, 1, 1))

    def guess(**site):
        return Space(tuple(DepthwiseI16(site=Site(**site)).variants(layer.workload(DepthwiseI16()), CORE))).default()

    assert guess()["weights"] == "params"
    assert guess(constants=SLOW_MEMORY)["weights"] == "scratch"
    assert guess(constants=SLOW_MEMORY, most_scratch=256)["weights"] == "params"
