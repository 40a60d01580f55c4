"""A model that does not fit is compiled as streams: exact, within its limit, or refused with what would do."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import NETS
from tosa_graphs import Graph

from tosaic.api import Build
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.build import simulator_objects
from tosaic.backends.simulators.run import encode_rows, fed_rows, read_outputs, run_firmware
from tosaic.backends.simulators.runners import find_runner
from tosaic.backends.target import Memory
from tosaic.compiler.compilation import tune_model
from tosaic.compiler.fitting.tasks import lean_task
from tosaic.compiler.options import CompileOptions, Tuning
from tosaic.compiler.tuning import Tuner
from tosaic.runs.running import difference_of_samples, reference_outputs
from tosaic.support.mlir import functions
from tosaic.target_files.ready import find_target
from tosaic.tuner.database import Record
from tosaic.tuner.measurement import Measurement, Objective
from tosaic.tuner.space import Schedule
from tosaic.tuner.tune import TuningResult

MODEL = f"{NETS}:tall"
ROWS = 20
"""Of its image."""


@pytest.fixture(scope="module")
def streamed(succeed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("streamed")
    records = folder / "records.db"
    whole = succeed("compile", MODEL, "--records", records, "-o", folder / "whole")
    limit = whole["arena_bytes"] * 2 // 3
    return whole, succeed("compile", MODEL, "--records", records, "--arena-size", limit, "-o", folder / "small"), limit


def test_streams_fit_into_the_limit_and_are_exact(streamed, succeed):
    _, small, limit = streamed
    assert small["arena_bytes"] <= limit
    assert any("stream" in kernel["name"] for kernel in small["kernels"])
    report = succeed("run", small["build"], "--random", 2)
    assert report["exact"]


def test_streams_of_int16_fit_into_half_and_are_exact(streamed, succeed, tmp_path):
    """They are tried on what the model makes of its input."""
    records, limit = f"{streamed[1]['build']}/../records.db", ROWS * 16 * (48 + 16) * 2 // 2
    options = ("--activations", "int16", "--records", records, "--arena-size", limit)
    build = succeed("compile", MODEL, *options, "-o", tmp_path / "build")
    assert build["arena_bytes"] <= limit
    assert any("stream" in kernel["name"] for kernel in build["kernels"])
    assert succeed("run", build["build"], "--random", 2)["exact"]


def test_a_lean_kernel_takes_no_record_of_the_generic_lowering(tmp_path):
    """Another compilation may have left one, as cheap as can be."""
    g = Graph()
    y = g.conv2d(g.input((1, 8, 8, 16)), np.ones((16, 3, 3, 16)), np.zeros(16), pad=(1, 1, 1, 1))
    (function,) = functions(g.module(g.requantize(y, "i8", np.full(16, 0.01)))).values()
    target = find_target("cortex-m55")
    task, generic = KernelTask.of(function, target.core), Schedule.of("linalg.loops")
    lean = lean_task(task, Site(target.layout.constants), 2048, "conv2d")
    cheap = Measurement("ok", instructions=1, cycles=1, code=task.code(generic))
    with Tuner(target, Tuning(records=tmp_path / "records.db"), None) as tuner:
        tuner.database.append([Record(key, generic, cheap) for key in {task.key, lean.key}])
        (whole,), (held,) = (tuner.choose({"conv": each}).values() for each in (task, lean))
    assert whole.schedule == generic and whole.source.scratch_bytes > 2048
    assert held.source.scratch_bytes <= 2048


def test_kernels_of_streams_are_tuned_by_how_often_they_are_called(streamed, monkeypatch):
    """The strips of three layers, which are held to one family, make as many rows as the image has."""
    _, small, limit = streamed
    asked: list[tuple[KernelTask, float]] = []

    def tune(tasks, *_, **__) -> TuningResult:
        asked.extend(tasks)
        return TuningResult({}, 0, 0, {}, 0, 0.0, False)

    monkeypatch.setattr("tosaic.compiler.tuning.tune", tune)
    records = Path(small["build"]).parent / "records.db"
    target = find_target("cortex-m55", arena_size=limit)
    tune_model(CompileOptions(MODEL, target, tuning=Tuning(trials=1, records=records)))
    rows = [(int(task.name.split("x")[1]), calls) for task, calls in asked if task.families]
    assert {(4, 5.0), (1, 4.0)} <= set(rows) and sum(height * calls for height, calls in rows) == 3 * ROWS
    assert {calls for task, calls in asked if not task.families} == {1.0}


def test_an_objective_without_waits_guesses_without_them(tmp_path):
    target = find_target("cortex-m55")
    memories: dict[Objective, Memory | None] = {
        "cycles": target.layout.constants,
        "core-cycles": None,
        "instructions": None,
    }
    for objective, memory in memories.items():
        with Tuner(target, Tuning(objective=objective, records=tmp_path / "records.db"), None) as tuner:
            assert tuner.constants == memory


def test_every_op_of_a_stream_is_in_the_report(streamed):
    whole, small, _ = streamed
    assert sorted(op["op"] for op in small["ops"]) == sorted(op["op"] for op in whole["ops"])


def test_streams_are_verified_call_by_call(streamed, succeed):
    _, small, _ = streamed
    assert succeed("verify", small["build"], "--inputs", 1)["exact"]


def test_the_front_trades_memory_for_speed_and_its_ways_can_be_built(streamed, succeed, tmp_path):
    _, small, limit = streamed
    records, folder = f"{small['build']}/../records.db", tmp_path / "build"
    points = succeed("fit", MODEL, "--records", records, "--point", 2, "-o", folder)["points"]
    sizes = [point["arena"] for point in points]
    assert sizes[-1] <= limit
    assert sizes == sorted(sizes, reverse=True)
    assert any(len(stream) > 1 for stream in points[-1]["streams"])
    parameters = 7_333
    assert all(3 * parameters > point["flash"] > parameters for point in points)
    assert Build.load(folder).manifest.firmware.arena_bytes <= sizes[1] < sizes[0]


def test_the_front_tells_flash_and_a_limit_of_it_holds(streamed, refused, succeed, tmp_path):
    """Within the arena of the streams there are others of less flash."""
    _, small, arena = streamed
    records, limit = ("--records", f"{small['build']}/../records.db"), small["flash_bytes"] - 1
    within = (*records, "--arena-size", arena, "--flash-size", limit)
    build = succeed("compile", MODEL, *within, "-o", tmp_path / "build")
    assert build["flash_bytes"] <= limit and build["arena_bytes"] <= arena
    assert succeed("run", build["build"])["exact"]
    message = refused("compile", MODEL, *records, "--flash-size", 5000, "-o", tmp_path / "none")
    assert "the firmware needs more flash than 5000 B" in message
    least = re.search(r"the smallest way known takes (\d+) B; `conv2d_\w+` has (\d+) B of constants", message)
    assert least is not None and int(least[2]) < int(least[1]) <= limit


def test_what_calls_nothing_is_run_in_one_way(succeed, tosaic, refused, tmp_path):
    model, records = f"{NETS}:doubled", tmp_path / "records.db"
    (point,) = succeed("fit", model, "--records", records)["points"]
    row = re.search(r"^ *1 +([\d,]+)", tosaic("fit", model, "--records", records).stdout, re.MULTILINE)
    assert row is not None and int(row[1].replace(",", "")) == point["arena"]
    built = succeed("compile", model, "--records", records, "-o", tmp_path / "build")
    assert (point["cost"], built["kernels"], built["arena_bytes"]) == (0, [], point["arena"])
    assert succeed("run", built["build"])["exact"]
    message = refused("fit", model, "--records", records, "--point", 2, "-o", tmp_path / "none")
    assert "there is no way number 2" in message and "the list has 1" in message


def test_a_limit_that_nothing_meets_is_an_error_that_names_the_least(streamed, refused, succeed, tmp_path):
    records = f"{streamed[1]['build']}/../records.db"
    message = refused("compile", MODEL, "--arena-size", 1000, "--records", records, "-o", tmp_path / "build")
    assert "the model needs more memory than `cortex-m55` has for its arena" in message
    least = re.search(r"strip by strip, (\d+) B do", message)
    assert least is not None
    built = succeed("compile", MODEL, "--arena-size", least[1], "--records", records, "-o", tmp_path / "build")
    assert built["arena_bytes"] <= int(least[1])
    assert succeed("run", built["build"], "--random", 2)["exact"]


def test_channels_that_are_pooled_at_once_lie_nowhere_all_together(succeed, tmp_path):
    model, records = f"{NETS}:crowned", ("--records", tmp_path / "records.db")
    build = succeed("compile", model, *records, "--arena-size", 4000, "-o", tmp_path / "build")
    assert build["arena_bytes"] <= 4000 < 36 * 256
    assert succeed("run", build["build"], "--random", 2)["exact"]


def test_what_is_enlarged_and_joined_lies_nowhere_as_a_whole(succeed, tmp_path):
    model, records = f"{NETS}:hourglass", ("--records", tmp_path / "records.db")
    kept, enlarged = 20 * 12 * 16, 20 * 12 * 16
    build = succeed("compile", model, *records, "--arena-size", kept + enlarged, "-o", tmp_path / "build")
    (stream,) = (kernel["name"] for kernel in build["kernels"] if "stream" in kernel["name"])
    assert {"RESIZE", "TRANSPOSE_CONV2D", "CONCAT"} <= {op["op"] for op in build["ops"] if op["function"] == stream}
    assert succeed("run", build["build"], "--random", 2)["exact"]


def test_the_least_that_an_error_tells_is_enough(succeed, refused, tmp_path):
    """Streams of the least working memory take less than they are deemed to at first."""
    model, records = f"{NETS}:hourglass", ("--records", tmp_path / "records.db", "-o", tmp_path / "build")
    message = refused("compile", model, *records, "--arena-size", 2000)
    told = re.search(r"strip by strip, (\d+) B do", message)
    assert told is not None
    assert succeed("compile", model, *records, "--arena-size", told[1])["arena_bytes"] == int(told[1])


@pytest.fixture(scope="module")
def fed(streamed, succeed, tmp_path_factory):
    records, folder = f"{streamed[1]['build']}/../records.db", tmp_path_factory.mktemp("fed") / "build"
    layout = ("--input-layout", "nhwc", "--stream-input")
    return succeed("compile", MODEL, *layout, "--records", records, "-o", folder)


def test_an_input_that_comes_row_by_row_lies_nowhere(fed, succeed):
    firmware = Build.load(Path(fed["build"])).manifest.firmware
    assert firmware.fed_rows == ROWS
    assert "input_0" not in {block.name for block in firmware.plan}
    assert succeed("run", fed["build"], "--random", 2)["exact"]
    assert succeed("verify", fed["build"], "--inputs", 1)["exact"]


def with_rows_at_once(build: Build, rows: int, tmp_path: Path) -> Path:
    """The ELF of a build that is fed so many rows at a time."""
    firmware, target = build.manifest.firmware, build.manifest.target
    macros = ['HEADER="model.h"', "MODEL(x)=model_##x", "INPUTS=1", "OUTPUTS=1", f"ROWS_AT_ONCE={rows}"]
    macros += ["ROWS=MODEL_ROWS", "ROW_BYTES=MODEL_ROW_BYTES"]
    main, elf = tmp_path / "main.o", tmp_path / "model.elf"
    flags = [f"-I{build.folder / 'kit' / 'include'}", *(f"-D{macro}" for macro in macros)]
    toolchain.compile_c(toolchain.SOURCES / "simulator_main.c", main, target.core, *flags)
    objects = simulator_objects(build.folder, firmware.name, target.core, firmware.has_npu, str(main))
    toolchain.link(objects, build.folder / "model.ld", elf, target.core)
    return elf


@pytest.mark.parametrize("rows", [4, 10, ROWS])
def test_rows_may_come_in_any_number(fed, rows, tmp_path):
    build = Build.load(Path(fed["build"]))
    firmware, runner = build.manifest.firmware, find_runner("qemu", build.manifest.target)
    elf = with_rows_at_once(build, rows, tmp_path)
    shape = firmware.inputs[0].shape
    samples = [(np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8),) for seed in range(2)]
    expected = run_firmware(build.elf, firmware, samples, runner).outputs
    assert np.array_equal(run_firmware(elf, firmware, samples, runner).outputs, expected)


def test_rows_may_be_cut_into_parts_as_they_come(succeed, tmp_path):
    """The least that does is a stream of parts, which compute the columns at the cut twice; of ways that are slower
    and larger than others none is listed."""
    model, records = f"{NETS}:broad", ("--records", tmp_path / "records.db")
    options = (model, "--input-layout", "nhwc", "--stream-input", *records)
    points = succeed("fit", *options)["points"]
    costs, products = ([point[name] for point in points] for name in ("cost", "products"))
    assert costs == sorted(costs)
    whole = 9 * 16 * (3 * 16 * 96 + 8 * 8 * 48)
    assert products[0] == whole < products[-1] < 1.1 * whole
    build = succeed("compile", *options, "--arena-size", points[-1]["arena"], "-o", tmp_path / "build")
    assert any(re.search(r"parts=[2-9]", kernel["schedule"]) for kernel in build["kernels"])
    assert succeed("run", build["build"], "--random", 2)["exact"]
    test_rows_may_come_in_any_number(build, 4, tmp_path)


def test_rows_of_any_number_of_bytes(succeed, tmp_path):
    layout = ("--input-layout", "nhwc", "--stream-input")
    build = succeed("compile", f"{NETS}:odd", *layout, "-o", tmp_path / "build")
    stages = [op["function"] for op in build["ops"] if op["op"] == "CONV2D"]
    assert len(stages) == 2
    assert succeed("run", build["build"], "--random", 2)["exact"]


def test_what_needs_the_whole_input_cannot_take_rows(refused, tmp_path):
    message = refused("compile", MODEL, "--stream-input", "-o", tmp_path / "build")
    assert "the input cannot be taken row by row" in message
    assert "--input-layout nhwc" in message


@pytest.fixture(scope="module")
def sliding(succeed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sliding")
    return succeed("compile", f"{NETS}:listener", "--sliding", "--records", folder / "r.db", "-o", folder / "build")


def test_a_window_that_moves_on_costs_what_is_new(sliding, succeed):
    firmware = Build.load(Path(sliding["build"])).manifest.firmware
    assert (firmware.fed_rows, firmware.hop_rows) == (22, 2)
    report = succeed("run", sliding["build"], "--random", 12)
    assert report["exact"]
    assert report["further_window"]["instructions"] < report["instructions"] / 3
    assert succeed("verify", sliding["build"], "--inputs", 1)["exact"]


def test_windows_may_begin_anew_at_any_time(sliding):
    build = Build.load(Path(sliding["build"]))
    firmware, runner = build.manifest.firmware, find_runner("qemu", build.manifest.target)
    rng = np.random.default_rng(0)
    frames = rng.integers(-128, 128, (40, 8)).astype(np.int8)
    begins = [0, 2, 4, 9, 11, 0, 2, 18, 18]
    samples = [(frames[None, begin : begin + 22],) for begin in begins]
    found = run_firmware(build.elf, firmware, samples, runner).outputs
    expected = reference_outputs(build, [list(sample) for sample in samples])
    assert difference_of_samples(expected, found) == ""


@pytest.mark.parametrize("rows", [2, 22])
def test_frames_may_come_in_any_number(sliding, rows, tmp_path):
    build = Build.load(Path(sliding["build"]))
    firmware, runner = build.manifest.firmware, find_runner("qemu", build.manifest.target)
    elf = with_rows_at_once(build, rows, tmp_path)
    frames = np.random.default_rng(1).integers(-128, 128, (44, 8)).astype(np.int8)
    samples = [(frames[None, :22],), (frames[None, 22:],)]
    execution = runner.run(elf, {"inputs.bin": encode_rows(fed_rows(firmware, samples))}, count=False)
    expected = reference_outputs(build, [list(sample) for sample in samples])
    assert difference_of_samples(expected, read_outputs(execution, firmware.outputs, len(samples))) == ""


def test_what_has_padding_in_time_cannot_slide(refused, tmp_path):
    message = refused("compile", f"{NETS}:odd", "--input-layout", "nhwc", "--sliding", "-o", tmp_path / "build")
    assert "the input cannot be taken row by row" in message
    assert "made of padding" in message
    assert "without padding in time" in message
