"""Pools and depthwise convolutions as nests of windows: traces, golden C, and what the verifier refuses."""

from __future__ import annotations

import mve_layers
import numpy as np
import pytest
from family_cases import task_of
from golden_files import assert_golden
from slow_memory import SLOW_MEMORY
from tosa_graphs import Graph

from tosaic.backends.cores.cortex_m55 import CORE, PIPELINE
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.kernels import pool
from tosaic.backends.cortex_m.kernels.depthwise_i16 import DepthwiseI16
from tosaic.backends.cortex_m.kernels.pool import Pool
from tosaic.backends.cortex_m.nest.joins import Code, LaneAccess, PoolReduction, ReductionTile
from tosaic.backends.cortex_m.nest.nest import parse_trace, print_trace
from tosaic.backends.cortex_m.nest.windows import placed, scheduled
from tosaic.support.errors import BackendError
from tosaic.support.mlir import functions
from tosaic.tuner.space import Schedule, Space

UNROLLED = {"ahead": 0, "columns": 1, "issue": "best", "once": "image", "rows": 1, "vectors": 1, "weights": "params"}


def _maximum(shape=(1, 9, 9, 64), kernel=(3, 3), stride=(2, 2), pad=(0, 0, 0, 0)):
    graph = Graph()
    (function,) = functions(graph.module(graph.pool("max", graph.input(shape), kernel, stride, pad))).values()
    found = Pool().match(function)
    assert found is not None
    return found


def _depthwise():
    return mve_layers.depthwise_i16(np.random.default_rng(0), (1, 6, 5, 16), (3, 3), pad=(1, 1, 1, 1))


def test_a_trace_prints_parses_and_replays_to_the_same_nest():
    what = pool._windows(_maximum())
    kernel = scheduled(what, Schedule.of("unrolled", **{**UNROLLED, "rows": 2, "columns": 2}), PIPELINE)
    text = print_trace(kernel.nest.trace)
    assert "turn(out, c)" in text
    stages = {loop.axis: loop.extent for loop in kernel.nest.stages["out"] if loop.name == loop.axis}
    assert stages == {"y": 4, "x": 4, "c": 64, "ky": 3, "kx": 3}
    assert what.nest.replay(parse_trace(text)) == kernel.nest


def test_the_c_of_one_pool_stays_what_it_is():
    schedule = Schedule.of("unrolled", **{**UNROLLED, "columns": 2})
    assert_golden("max_pool2d.c", Pool().generate(_maximum(), schedule, CORE), "INLINE void tile")


def test_the_c_of_one_depthwise_convolution_stays_what_it_is():
    schedule = Schedule.of("unrolled", **{**UNROLLED, "once": "weights", "rows": 2})
    source = _depthwise().case(DepthwiseI16(), schedule).source
    assert_golden("depthwise_conv2d_i16.c", source, "INLINE void tile")


def test_neighbors_share_what_their_windows_have_in_common():
    """Two windows of 3 x 3 side by side: 12 loads, 2 joins in each of 4 columns, and 3 of the columns."""
    tile = ReductionTile(((0, 1, 2),), ((0, 1, 2), (0, 1, 2)), (3, 3), (1, 1), (1, 1), (16, 16))
    code = [each.mnemonic for each in PoolReduction(1, 1).code(tile)]
    assert {name: code.count(name) for name in set(code)} == {"vldrw.u32": 12, "vmax.s8": 11, "vstrb.8": 2}


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
    ("variant", "knobs", "message"),
    [
        ("unrolled", {}, ""),
        ("unrolled", {"rows": 5}, "`y` of 4 cannot be split by 5"),
        ("unrolled", {"vectors": 5}, "`c` of 64 cannot be split by 80"),
        ("unrolled", {"vectors": 4, "columns": 4}, "16 windows of 9 are too much to unroll"),
        ("walk", {"vectors": 4, "issue": "best"}, ""),
    ],
    ids=str,
)
def test_the_verifier_says_what_is_illegal_in_a_pool(variant, knobs, message):
    schedule = Schedule.of(variant, **({**UNROLLED, **knobs} if variant == "unrolled" else knobs))
    if not message:
        Pool().generate(_maximum(), schedule, CORE)
        return
    with pytest.raises(BackendError, match=message):
        Pool().generate(_maximum(), schedule, CORE)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"rows": 2, "columns": 2}, "2 x 2 outputs need 11 vector registers"),
        ({"rows": 2, "columns": 1, "once": "weights", "vectors": 3}, "`c` of 16 cannot be split by 24"),
    ],
    ids=str,
)
def test_the_verifier_says_what_is_illegal_in_a_depthwise_convolution(knobs, message):
    with pytest.raises(BackendError, match=message):
        _depthwise().case(DepthwiseI16(), Schedule.of("unrolled", **{**UNROLLED, "once": "weights", **knobs}))


def test_only_pools_are_walked():
    with pytest.raises(BackendError, match="only pools are walked by the hardware loop"):
        _depthwise().case(DepthwiseI16(), Schedule.of("walk", vectors=1, issue="best"))


def test_the_guess_copies_weights_out_of_a_slow_memory_where_there_is_room():
    layer = mve_layers.depthwise_i16(np.random.default_rng(0), (1, 16, 16, 16), (3, 3), pad=(1, 1, 1, 1))

    def guess(**site):
        return Space(tuple(DepthwiseI16(site=Site(**site)).variants(layer.workload(DepthwiseI16()), CORE))).default()

    assert guess()["weights"] == "params"
    assert guess(constants=SLOW_MEMORY)["weights"] == "scratch"
    assert guess(constants=SLOW_MEMORY, most_scratch=256)["weights"] == "params"


def test_there_is_something_to_decide():
    for build in (
        lambda g: g.pool("max", g.input((1, 33, 33, 64)), (3, 3), (2, 2)),
        lambda g: g.pool("avg", g.input((1, 8, 8, 64)), (2, 2), (2, 2)),
    ):
        assert sum(1 for _ in task_of(build, ("pool",)).space.schedules()) >= 60
