"""Bilinear resizing kernels under QEMU equal the reference model."""

from __future__ import annotations

import pytest
from family_cases import Build, outcomes_of, task_of
from golden_files import assert_golden
from tosa_graphs import Graph

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.cortex_m.nest.blend_finish import Average
from tosaic.backends.cortex_m.nest.blends import Blends, scheduled
from tosaic.backends.cortex_m.nest.lane_access import Code, LaneAccess, placed
from tosaic.backends.cortex_m.nest.nest import parse_trace
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.support.errors import BackendError
from tosaic.support.mlir import ir
from tosaic.tuner.space import Schedule


def resized(g: Graph, shape, scale, offset, border, real: float = 1 / 16, **rescale) -> ir.Value:
    return g.requantize(g.resize(g.input(shape), "BILINEAR", scale, offset, border), "i8", real, **rescale)


CENTERED = ((4, 2, 4, 2), (-1, -1), (1, 1))
CASES: dict[str, Build] = {
    f"twice, {c} channels": lambda g, c=c: resized(g, (2, 5, 9, c), *CENTERED) for c in (1, 3, 8, 13, 24)
}
CASES |= {
    "other rows than columns": lambda g: resized(g, (1, 4, 6, 10), (6, 2, 3, 1), (-2, 0), (2, 0), 1 / 18),
    "smaller": lambda g: resized(g, (1, 9, 12, 5), (2, 4, 2, 4), (1, 1), (1, -1), 1 / 4),
    "corners": lambda g: resized(g, (1, 4, 8, 16), (7, 3, 15, 7), (0, 0), (0, 0), 1 / 105),
    "far beyond the edges": lambda g: resized(g, (1, 3, 3, 4), (4, 1, 4, 1), (-4, 9), (3, 3)),
    "other formats": lambda g: resized(g, (1, 6, 4, 20), *CENTERED, 0.0391, output_zero=17),
    "corners, sums of 32 bits": lambda g: resized(g, (1, 8, 16, 5), (30, 14, 62, 30), (0, 0), (0, 0), 1 / 1860),
    "many channels, sums of 32 bits": lambda g: resized(
        g, (2, 6, 5, 24), (46, 12, 58, 10), (-17, -24), (5, 4), 1 / 2668
    ),
    "the largest weights": lambda g: resized(g, (1, 3, 2, 8), (255, 128, 999, 500), (0, 0), (2, 1), 1 / 254745),
    "the widest sums": lambda g: resized(g, (1, 3, 4, 8), (15, 5, 17, 1), (0, 0), (0, 0), 1 / 255),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return outcomes_of(CASES, ("resize",), tmp_path_factory.mktemp("resize"), samples=4)


@pytest.mark.parametrize("name", CASES)
def test_schedules_equal_the_reference(name, outcomes):
    assert len(outcomes[name]) > 4
    for outcome in outcomes[name]:
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    "build",
    [
        lambda g: resized(g, (1, 3, 4, 8), (256, 256, 16, 16), (0, 0), (0, 0), 1 / 4096),
        lambda g: resized(g, (1, 4, 7, 1), *CENTERED),
        lambda g: g.resize(g.input((1, 4, 4, 8)), "BILINEAR", *CENTERED),
        lambda g: g.requantize(g.resize(g.input((1, 4, 4, 8)), "NEAREST_NEIGHBOR", *CENTERED), "i8", 0.5),
    ],
    ids=["rows of more than 16 bits", "rows shorter than a vector", "no rescale", "nearest"],
)
def test_others_are_left_to_the_generic_path(build):
    assert {variant.name for variant in task_of(build).space.variants} == {"linalg.loops"}


def _doubled() -> KernelTask:
    return task_of(lambda g: resized(g, (1, 4, 4, 16), *CENTERED), ("resize",))


def test_the_c_of_one_schedule_stays_what_it_is():
    schedule = Schedule.of("resize.channels", blend=2, out=2, ahead=0)
    assert_golden("resize.c", _doubled().generate(schedule), "INLINE void blended")


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


WHAT = Blends(1, 8, 8, 4, 4, 16, Average(0, 0, 0, 4, 0))


def test_a_trace_replays_to_the_same_nest():
    kernel = scheduled(WHAT, Schedule.of("columns", blend=2, out=2, ahead=1), PIPELINE)
    assert kernel.gathers
    assert WHAT.nest.replay(parse_trace("\n".join(map(str, kernel.nest.trace)))) == kernel.nest


@pytest.mark.parametrize(
    ("variant", "knobs", "message"),
    [
        ("channels", {"out": 3}, "`c` of 16 cannot be split by 24"),
        ("columns", {"blend": 9}, "`i` of 64 cannot be split by 72"),
    ],
    ids=["channels", "row"],
)
def test_the_verifier_says_what_is_illegal(variant, knobs, message):
    with pytest.raises(BackendError, match=message):
        scheduled(WHAT, Schedule.of(variant, **{"blend": 1, "out": 1, "ahead": 0, **knobs}), PIPELINE)
