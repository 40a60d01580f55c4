"""Moving elements: schedules, under QEMU, equal the reference model."""

from __future__ import annotations

import numpy as np
import pytest
from board import M0, M4
from family_cases import Build, outcomes_of, task_of
from golden_files import assert_golden_text

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernels.movement_sketch import VectorMovement
from tosaic.backends.cortex_m.program.kernel import of_schedule
from tosaic.backends.cortex_m.program.movement import CopyAxis, CopyBox
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.cortex_m.program.text import listing
from tosaic.tuner.space import Schedule

SCATTERED = {"walk": "scatter", "strip": 0, "unroll": 1, "ahead": 1}
CASES: dict[str, Build] = {}
for e in ("i8", "i16", "i32", "f32"):
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


def test_an_image_of_three_planes_takes_less_than_an_instruction_for_two_bytes(tmp_path):
    image = {"image": lambda g: g.transpose(g.input((1, 3, 32, 32)), (0, 2, 3, 1))}
    (found,) = outcomes_of(image, ("movement",), tmp_path).values()
    assert found[0].instructions < 3 * 32 * 32 / 2


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


def test_steps_tree_and_c_of_one_transpose_stay_what_they_are():
    transposed = CopyBox.of(0, 0, 0, [CopyAxis(3, 32, 1), CopyAxis(32, 1, 3)])
    what = VectorMovement((transposed,), (96,), 96, "i8", None)
    kernel = of_schedule(what, Schedule.of("vectors", **SCATTERED), CORTEX_M55)
    steps = "".join(f"{step}\n" for step in kernel.steps)
    about = f"{kernel.cycles} cycles, {kernel.scratch} bytes of working memory\n"
    assert_golden_text("program_movement.txt", f"{steps}\n{listing(kernel.program)}\n{about}\n{kernel.text}")
