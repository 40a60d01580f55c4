"""Moving elements: schedules, under QEMU, equal the reference model."""

from __future__ import annotations

import numpy as np
import pytest
from board import M0, M4, M55, Case, run_cases
from family_cases import Build, evaluate_all, outcomes_of, task_of
from golden_files import assert_golden_text
from tosa_graphs import Graph

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import Overlap
from tosaic.backends.cortex_m.kernels.movement_sketch import InterleavedMovement, VectorMovement
from tosaic.backends.cortex_m.program.kernel import of_schedule, scheduled
from tosaic.backends.cortex_m.program.movement import CopyAxis, CopyBox
from tosaic.backends.cortex_m.program.schedule import Step, parse_steps
from tosaic.backends.cortex_m.program.text import listing
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.support.mlir import ir
from tosaic.tuner.space import Schedule

SCATTERED = {"walk": "scatter", "strip": 0, "unroll": 1, "ahead": 1}
DTYPES = {"i8": "i1", "i16": "i2", "i32": "i4", "f32": "f4"}
CASES: dict[str, Build] = {}
for e in ("i8", "i16", "i32", "f32"):
    for planes in (2, 3, 4, 5):
        CASES[f"{planes} planes of vectors of {e} to channels"] = lambda g, e=e, c=planes: g.transpose(
            g.input((2, c, 4, 12), e), (0, 2, 3, 1)
        )
    CASES[f"three planes of one vector of {e} to channels"] = lambda g, e=e: g.transpose(
        g.input((1, 3, 1, 16 // np.dtype(DTYPES[e]).itemsize), e), (0, 2, 3, 1)
    )
    for channels in (1, 2, 3, 4, 5, 17, 40):
        CASES[f"{channels} planes to {channels} channels of {e}"] = lambda g, e=e, c=channels: g.transpose(
            g.input((1, c, 5, 7), e), (0, 2, 3, 1)
        )
        CASES[f"{channels} channels to {channels} planes of {e}"] = lambda g, e=e, c=channels: g.transpose(
            g.input((2, 5, 7, c), e), (0, 3, 1, 2)
        )
    for perms in ((1, 0, 2, 3), (0, 2, 1, 3), (3, 2, 1, 0), (2, 0, 3, 1), (0, 1, 2, 3)):
        CASES[f"transpose {perms} of {e}"] = lambda g, e=e, p=perms: g.transpose(g.input((2, 3, 5, 19), e), p)
    CASES |= {
        f"transpose of {e} with far offsets": lambda g, e=e: g.transpose(g.input((3, 10000), e), (1, 0)),
        f"slice of {e}": lambda g, e=e: g.slice(g.input((3, 5, 71), e), (1, 0, 2), (2, 5, 67)),
        f"slice of {e} to one channel": lambda g, e=e: g.slice(g.input((3, 5, 7), e), (0, 0, 2), (3, 5, 1)),
        f"pad of {e}": lambda g, e=e: g.pad(g.input((3, 5, 7), e), (1, 0, 2, 1, 0, 3), -5),
        f"pad of the image of {e}": lambda g, e=e: g.pad(g.input((1, 5, 4, 35), e), (0, 0, 1, 2, 3, 1, 0, 0), 9),
        f"pad of {e} by nothing": lambda g, e=e: g.pad(g.input((3, 5), e), (0, 0, 0, 0), 9),
        f"concat of rows of {e}": lambda g, e=e: g.concat([g.input((3, 5, 7), e), g.input((3, 2, 7), e)], 1),
        f"concat of channels of {e}": lambda g, e=e: g.concat(
            [g.input((3, 5, 7), e), g.input((3, 5, 1), e), g.input((3, 5, 16), e)], 2
        ),
        f"tile of {e}": lambda g, e=e: g.tile(g.input((3, 5, 7), e), (2, 1, 3)),
        f"tile of {e} of one channel": lambda g, e=e: g.tile(g.input((3, 5, 1), e), (1, 2, 37)),
    }


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return outcomes_of(CASES, ("movement",), tmp_path_factory.mktemp("movement"), samples=2)


@pytest.mark.parametrize("name", CASES)
def test_schedules_equal_the_reference(name, outcomes):
    assert outcomes[name]
    for outcome in outcomes[name]:
        assert outcome.exact, outcome


@pytest.mark.parametrize(
    ("planes", "dtype", "scattered", "interleaved"),
    [
        (2, "i8", 20, 14),
        (3, "i8", 30, 18),
        (4, "i8", 40, 27),
        (2, "i16", 12, 12),
        (3, "i16", 18, 14),
        (4, "i16", 24, 17),
    ],
)
def test_vectors_of_planes_are_interleaved_where_that_takes_less(planes, dtype, scattered, interleaved):
    task = task_of(lambda g: g.transpose(g.input((1, planes, 64, 64), dtype), (0, 2, 3, 1)), ("movement",))
    assert task.default().variant == "movement.interleaved"
    box = CopyBox.of(0, 0, 0, [CopyAxis(planes, 4096, 1), CopyAxis(4096, 1, planes)])
    what = (box,), (planes * 4096,), planes * 4096, dtype, None
    kernels = (
        of_schedule(VectorMovement(*what), Schedule.of("vectors", **SCATTERED), CORTEX_M55),
        of_schedule(InterleavedMovement(*what), Schedule.of("interleaved"), CORTEX_M55),
    )
    vectors = 4096 * np.dtype(DTYPES[dtype]).itemsize // 16
    assert [kernel.cycles // vectors for kernel in kernels] == [scattered, interleaved]


@pytest.mark.parametrize(
    "axes",
    [
        [CopyAxis(3, 40, 1), CopyAxis(40, 1, 3)],
        [CopyAxis(5, 64, 1), CopyAxis(64, 1, 5)],
        [CopyAxis(3, 64, 1), CopyAxis(64, 1, 4)],
        [CopyAxis(64, 3, 1), CopyAxis(3, 1, 64)],
    ],
    ids=["no whole vectors", "many planes", "others beside", "channels"],
)
def test_what_is_no_box_of_few_planes_is_not_interleaved(axes):
    what = InterleavedMovement((CopyBox.of(0, 0, 0, axes),), (512,), 512, "i8", None)
    with pytest.raises(RefusedError, match="no box of few planes"):
        of_schedule(what, Schedule.of("interleaved"), CORTEX_M55)


def test_halves_of_vectors_are_taken_before_others_are_moved_there():
    box = CopyBox.of(0, 0, 0, [CopyAxis(3, 64, 1), CopyAxis(64, 1, 3)])
    what = InterleavedMovement((box,), (192,), 192, "i8", None)
    forward = [str(step).replace(", backward", "") for step in of_schedule(what, Schedule.of("i"), CORTEX_M55).steps]
    with pytest.raises(RefusedError, match="spoils lanes that were written before"):
        scheduled(what.program(), parse_steps("\n".join(forward)), CORTEX_M55)


@pytest.mark.parametrize(
    "build",
    [
        lambda g: g.transpose(g.requantize(g.input((3, 5)), "i8", 0.5), (1, 0)),
        lambda g: g.concat([g.input((3, 5)), g.const(np.zeros((3, 5)), "i8")], 0),
    ],
)
def test_what_is_not_one_move_of_arguments_is_left_to_the_generic_path(build):
    assert {variant.name for variant in task_of(build).space.variants} == {"linalg.loops"}


@pytest.mark.parametrize("bench", [M4, M0], ids=["DSP", "baseline"])
def test_cores_without_vectors_compute_the_same(tmp_path, bench):
    cases = {name: build for name, build in CASES.items() if "i8" in name or "f32" in name}
    for name, found in outcomes_of(cases, ("movement",), tmp_path, bench=bench).items():
        assert found
        assert not [str(outcome) for outcome in found if not outcome.exact], name


def test_rows_that_may_lie_over_their_input_are_copied_by_words(tmp_path):
    cut = {"slice": lambda g: g.slice(g.input((1, 9, 10, 16)), (0, 0, 1, 0), (1, 9, 9, 16))}
    found = outcomes_of(cut, ("movement",), tmp_path, bench=M4)["slice"]
    assert all(outcome.exact and outcome.case.source.in_place for outcome in found)
    assert min(outcome.instructions for outcome in found) < 9 * 9 * 16
    task = task_of(cut["slice"], ("movement",), M4.core)
    assert Step("words", ("b0b",)) in task.trace(task.default())


def shifted(graph: Graph, shape: tuple[int, ...], axis: int, count: int, e: str = "i8") -> ir.Value:
    """What a state becomes that drops its first frames and takes as many new ones."""
    past, taken, begin = graph.input(shape, e), list(shape), [0] * len(shape)
    taken[axis], begin[axis] = shape[axis] - count, count
    new = [count if n == axis else extent for n, extent in enumerate(shape)]
    return graph.concat([graph.slice(past, begin, taken), graph.input(new, e)], axis)


@pytest.mark.parametrize("bench", [M55, M4, M0], ids=["M55", "M4", "M0"])
def test_frames_move_up_where_they_lie(bench, tmp_path):
    cases = {
        "a vector each": lambda g: shifted(g, (1, 9, 16), 1, 1),
        "words": lambda g: shifted(g, (1, 5, 64), 1, 1, "i32"),
        "halves": lambda g: shifted(g, (1, 17, 64), 1, 1, "i16"),
        "no whole vectors": lambda g: shifted(g, (1, 6, 40), 1, 1),
        "long ones": lambda g: shifted(g, (1, 4, 500), 1, 1),
        "two at a time": lambda g: shifted(g, (1, 1, 7, 32), 2, 2),
        "all but one": lambda g: shifted(g, (1, 5, 32), 1, 4),
    }
    expected, calls = evaluate_all(cases), []
    for name, build in cases.items():
        task = task_of(build, ("movement",), bench.core)
        for schedule in task.space.schedules():
            source, (inputs, output) = task.generate(schedule), expected[name]
            assert source.in_place == (Overlap(0, 0),)
            calls.append(Case(source, inputs, [output], f"{name}, {schedule}", over=True))
    assert [str(found) for found in run_cases(calls, tmp_path, bench=bench) if not found.exact] == []


def test_what_moves_the_other_way_lies_elsewhere():
    def oldest_last(g: Graph) -> ir.Value:
        return g.concat([g.input((1, 1, 64)), g.slice(g.input((1, 9, 64)), (0, 0, 0), (1, 8, 64))], 1)

    task = task_of(oldest_last, ("movement",))
    assert not any(task.generate(schedule).in_place for schedule in task.space.schedules())


def test_a_block_that_reads_what_it_has_written_lies_elsewhere():
    """An unrolled loop over what moves by a vector: its instructions may stand in any order."""
    box = CopyBox.of(0, 16, 0, [CopyAxis(64, 1, 1)])
    for moved, over in ((box, ()), (box.in_steps(), (Overlap(0, 0),))):
        what = VectorMovement((moved,), (80,), 80, "i8", None)
        kernel = of_schedule(what, Schedule.of("vectors", unroll=1, ahead=1), CORTEX_M55)
        assert kernel.source("movement", {}).in_place == over


def test_steps_tree_and_c_of_one_transpose_stay_what_they_are():
    transposed = CopyBox.of(0, 0, 0, [CopyAxis(3, 32, 1), CopyAxis(32, 1, 3)])
    what = VectorMovement((transposed,), (96,), 96, "i8", None)
    kernel = of_schedule(what, Schedule.of("vectors", **SCATTERED), CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_movement.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")
