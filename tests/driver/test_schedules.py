"""`--schedule FILE`: which kernels take which steps, and what is refused where."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import NETS
from tosa_graphs import Graph

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.compiler.schedules import Schedules
from tosaic.support.errors import Error
from tosaic.support.mlir import functions, ir
from tosaic.target_files.ready import find_target
from tosaic.tuner.space import Schedule

CORE = find_target("stm32f446").core
KNOWN = "cpu_0_conv2d (conv2d+rescale 1x1x1x8), cpu_1_conv2d (conv2d+rescale 1x1x1x8), cpu_2_reverse (reverse 1x8)"


def _dense(seed: int) -> ir.Module:
    rng, g = np.random.default_rng(seed), Graph()
    y = g.conv2d(g.input((1, 1, 1, 16)), rng.integers(-127, 128, (8, 1, 1, 16)), rng.integers(-99, 99, 8))
    return g.module(g.requantize(y, "i8", rng.uniform(0.001, 0.02, 8)))


@pytest.fixture(scope="module")
def tasks():
    graph = Graph()
    reverse = graph.module(graph.unary("reverse", graph.input((1, 8)), axis=1))
    modules = {"cpu_0_conv2d": _dense(0), "cpu_1_conv2d": _dense(1), "cpu_2_reverse": reverse}
    return {name: KernelTask.of(functions(module)["main"], CORE) for name, module in modules.items()}


def test_a_kernel_has_exactly_its_steps_and_the_others_their_spaces(tasks):
    given = Schedules.parse("# mine\n[cpu_1_conv2d]\ncompute_at(S, n)  # late\n\nplace(S, r)\n").given_to(tasks)
    assert [given[name] is tasks[name] for name in tasks] == [True, False, True]
    task = given["cpu_1_conv2d"]
    (schedule,) = task.space.schedules()
    assert schedule == task.default() == Schedule.of("conv2d.steps", steps="compute_at(S, n)\nplace(S, r)\n")
    assert [str(step) for step in task.trace(schedule)] == ["compute_at(S, n)", "place(S, r)"]
    assert Schedule.from_json(schedule.to_json()) == schedule in task.space
    assert tasks["cpu_1_conv2d"].space.variant("conv2d.steps") is None and task.key != tasks["cpu_1_conv2d"].key


def test_the_name_of_a_task_means_all_its_kernels_but_those_with_steps_of_their_own(tasks):
    text = "[conv2d+rescale 1x1x1x8]\ncompute_at(S, n)\n[cpu_0_conv2d]\n"
    given = Schedules.parse(text).given_to(tasks)
    schedules = [given[name].default() for name in ("cpu_0_conv2d", "cpu_1_conv2d")]
    assert [schedule["steps"] for schedule in schedules] == ["", "compute_at(S, n)\n"]


def test_a_section_says_whose_program_the_steps_rewrite(tasks):
    g = Graph()  # a sum that is a convolution, and an average
    y = g.conv2d(g.input((1, 6, 16, 1)), np.ones((1, 6, 1, 1)), np.zeros(1))
    module = g.module(g.requantize(y, "i8", np.array([0.05])))
    task = KernelTask.of(functions(module)["main"], CORE)
    assert list(task.algorithms()) == ["pool", "conv2d"]
    for header, variant in (("sum", "pool.steps"), ("sum: conv2d", "conv2d.steps"), ("sum:pool", "pool.steps")):
        assert Schedules.parse(f"[{header}]\n").given_to({"sum": task})["sum"].default().variant == variant
    assert _refusal("[cpu_0_conv2d: pol]\n", tasks) == (
        "`pol` has no program for it\n  at: mine.txt:1, the schedule of `cpu_0_conv2d`\n  try: one of conv2d"
    )


def _refusal(text: str, tasks: dict[str, KernelTask]) -> str:
    with pytest.raises(Error) as refused:
        Schedules.parse(text, "mine.txt").given_to(tasks)
    return str(refused.value)


def test_a_step_that_is_not_legal_is_named_with_its_line_and_reason(tasks):
    assert _refusal("[cpu_0_conv2d]\n\n# first\nsplit(n, ni, 3)\n", tasks) == (
        "`split(n, ni, 3)` is not legal here\n"
        "  at: mine.txt:4, the schedule of `cpu_0_conv2d`\n"
        "  because: 3 does not divide 8"
    )
    assert _refusal("[cpu_0_conv2d]\nsplt(n, ni, 4)\n", tasks) == (
        "`splt(n, ni, 4)` is not legal here\n"
        "  at: mine.txt:2, the schedule of `cpu_0_conv2d`\n"
        "  because: there is no schedule primitive `splt`\n"
        "  try: did you mean `split`?"
    )


def test_legal_steps_that_make_no_kernel_are_refused(tasks):
    assert _refusal("[cpu_0_conv2d]\ncompute_at(S, b)\nplace(S, r)\n", tasks) == (
        "the steps make no kernel for a cortex-m4\n"
        "  at: mine.txt:1, the schedule of `cpu_0_conv2d`\n"
        "  because: a loop counts registers of S: S[0, 0, 0, sn]"
    )


def test_an_unknown_kernel_lists_those_there_are(tasks):
    assert _refusal("[cpu_7_conv2d]\n", tasks) == (
        f"there is no kernel `cpu_7_conv2d`\n  at: mine.txt:1\n  because: the kernels of the CPU are {KNOWN}"
    )


def test_a_kernel_that_is_no_program_says_what_makes_it(tasks):
    assert _refusal("[cpu_2_reverse]\n", tasks) == (
        "the kernel takes no schedule by hand\n"
        "  at: mine.txt:1, the schedule of `cpu_2_reverse`\n"
        "  because: on a cortex-m4 it is no program of steps, but comes from linalg"
    )


def test_steps_are_given_to_a_core_with_vectors_too(tasks):
    vector = {name: KernelTask(task.module, CORTEX_M55) for name, task in tasks.items()}
    given = Schedules.parse("[cpu_0_conv2d]\ncompute_at(S, n)\n", "mine.txt").given_to(vector)["cpu_0_conv2d"]
    assert given.default().variant == "conv2d.steps" and given.is_program(given.default())
    assert vector["cpu_0_conv2d"].default().variant == "conv2d.row"


@pytest.mark.parametrize(
    "text, message",
    [
        ("unroll(n)\n", "`unroll(n)` belongs to no kernel\n  at: mine.txt:1\n  try: begin with a line [KERNEL]"),
        ("[a]\nunroll n\n", "`unroll n` is neither a step nor a [KERNEL]\n  at: mine.txt:2\n  because: a step reads"),
        ("[a]\n[b]\n[a]\n", "`a` has two schedules\n  at: mine.txt:3\n  because: the first one begins in line 1"),
    ],
)
def test_lines_that_mean_nothing(text, message):
    with pytest.raises(Error) as refused:
        Schedules.parse(text, "mine.txt")
    assert str(refused.value).startswith(message)


def test_a_file_that_is_not_there(refused, tmp_path):
    message = refused("compile", f"{NETS}:small", "--schedule", tmp_path / "absent.txt", "-o", tmp_path / "build")
    assert f"cannot read the schedules `{tmp_path / 'absent.txt'}`" in message
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_with_steps_of_its_own_takes_no_rows_as_they_come(refused, tmp_path):
    (tmp_path / "mine.txt").write_text("[cpu_0_conv2d]\n")
    message = refused(
        "compile", f"{NETS}:net", "--target", "stm32f446", "--input-layout", "nhwc", "--stream-input",
        "--kernels", "generic", "--schedule", tmp_path / "mine.txt", "-o", tmp_path / "build",
    )  # fmt: skip
    assert "the schedule of `cpu_0_conv2d` is given by hand, and a kernel that makes rows takes none" in message


def test_a_schedule_that_is_refused_ends_the_compilation_and_leaves_nothing(refused, tmp_path_factory):
    folder, home = tmp_path_factory.mktemp("given"), tmp_path_factory.mktemp("home")
    (folder / "mine.txt").write_text("[cpu_0_conv2d]\nunroll(b)\nunroll(b)\n")
    message = refused(
        "compile", f"{NETS}:small", "--target", "stm32f446", "--schedule", folder / "mine.txt", "-o", home / "build"
    )
    assert "`unroll(b)` is not legal here" in message
    assert f"{folder / 'mine.txt'}:3, the schedule of `cpu_0_conv2d`" in message
    assert list(home.iterdir()) == []
