"""Batches of trials: verified to the bit, bad candidates marked, the others unharmed."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from maximum import MaximumTask
from tosa_graphs import Graph

from tosaic.backends.boards import MPS3_AN547
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import KernelSource, Overlap
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.simulators.trial_examples import examples
from tosaic.support.errors import BackendError
from tosaic.target_files.ready import find_target
from tosaic.tuner.measurement import Measurement
from tosaic.tuner.space import Schedule

MEASURE = BatchMeasure(Qemu(CORTEX_M55, MPS3_AN547), CORTEX_M55, find_target("cortex-m55").trials)


def measure(names: Sequence[str], **options) -> list[tuple[str, str]]:
    results = replace(MEASURE, **options)(MaximumTask(), [Schedule(name) for name in names])
    assert all((m.instructions > 100 and (m.cycles or 0) > 100) == m.ok for m in results)
    return [(m.status, m.message) for m in results]


def test_candidates_are_verified_to_the_bit():
    assert measure(["good", "last", "nothing", "table"]) == [
        ("ok", ""),
        ("wrong", "output 0 differs at byte 396"),
        ("wrong", "output 0 differs at byte 0"),
        ("ok", ""),
    ]


def test_bad_candidates_are_marked_and_the_rest_measured():
    results = measure(
        ["refused", "good", "crash", "beyond", "broken", "hang", "scratch", "good"], region_limit=1_000_000
    )
    assert [status for status, _ in results] == [
        "illegal", "ok", "crash", "wrong", "compile-error", "timeout", "wrong", "ok",
    ]  # fmt: skip
    messages = [message for _, message in results]
    assert "no such kernel" in messages[0] and "maximum_crash" in messages[2] and "clang" in messages[4]
    assert messages[3] == "wrote beyond the ends of argument 2"
    assert messages[6] == "wrote beyond the ends of argument 3"


@dataclass(frozen=True)
class _LargeTask(MaximumTask):
    """The kernel `table` asks for more working memory than any board has."""

    def generate(self, schedule: Schedule) -> KernelSource:
        source = super().generate(schedule)
        return replace(source, scratch_bytes=1 << 30) if schedule.variant == "table" else source


def test_a_candidate_that_no_memory_holds_leaves_the_others_alone():
    results = MEASURE(_LargeTask(), [Schedule(name) for name in ("good", "table", "good", "last")])
    assert [m.status for m in results] == ["ok", "illegal", "ok", "wrong"]
    assert results[1].message == "its tensors and working memory do not fit the memory for trials"


def test_what_a_kernel_may_not_touch():
    assert measure(["before", "good", "below", "spoiled", "good"]) == [
        ("wrong", "wrote beyond the ends of argument 2"),
        ("ok", ""),
        ("wrong", "wrote beyond the ends of argument 3"),
        ("wrong", "wrote to its input 1 at byte 28"),
        ("ok", ""),
    ]


@dataclass(frozen=True)
class _OverwritingTask(MaximumTask):
    """Kernels of which all but `table` may write over their first input; `last` reads it behind that."""

    over: tuple[Overlap, ...] = (Overlap(0, 0),)

    def generate(self, schedule: Schedule) -> KernelSource:
        source = super().generate(schedule)
        if schedule.variant == "table":
            return source
        first = {"good": "if (out != a) for (volatile int i = 0; i < 999;) i++;", "last": "out[0] = 1 << 30;"}
        text = source.text.replace("(void)params;", first.get(schedule.variant, "")).replace("out[99]++;", "")
        return replace(source, text=text, in_place=(Overlap(0, 0),))


def test_an_output_takes_the_place_of_an_input_where_the_program_and_the_kernel_say_so():
    schedules = [Schedule(name) for name in ("good", "last", "table", "spoiled", "good")]
    over, apart = (MEASURE(replace(_OverwritingTask(), over=over), schedules) for over in ((Overlap(0, 0),), ()))
    assert [(m.status, m.message) for m in over] == [
        ("ok", ""), ("wrong", "output 0 differs at byte 0"), ("ok", ""),
        ("wrong", "wrote to its input 1 at byte 28"), ("ok", ""),
    ]  # fmt: skip
    assert [m.status for m in apart] == ["ok", "ok", "ok", "wrong", "ok"]
    assert over[0] == over[4] and over[0].instructions + 999 < apart[0].instructions
    assert over[2] == apart[2]


def test_a_candidate_that_does_not_link_is_found():
    results = measure(["good", "table", "unlinkable", "last"])
    assert [status for status, _ in results] == ["ok", "ok", "compile-error", "wrong"]
    assert "undefined symbol: nowhere" in results[2][1]


def test_a_measurement_does_not_depend_on_the_batch_or_the_process():
    alone = MEASURE(MaximumTask(), [Schedule("good")])
    batch = MEASURE(MaximumTask(), [Schedule("table"), Schedule("last"), Schedule("good")])
    with ProcessPoolExecutor(2) as pool:
        elsewhere = pool.submit(pickle.loads(pickle.dumps(MEASURE)), MaximumTask(), [Schedule("good")]).result()
    assert alone == elsewhere == [batch[2]]


def test_operands_are_priced_as_where_the_target_would_put_them():
    def waits(**options) -> list[int]:
        layout = find_target("cortex-m55", **options).trials
        return [m.waits for m in replace(MEASURE, layout=layout)(MaximumTask(), [Schedule("good"), Schedule("table")])]

    in_tcm, with_constants = waits()
    assert (in_tcm, with_constants) == (0, 150)  # tensors in DTCM; `table` reads a line of its constants, in MRAM
    assert waits(constants="sram") == [0, 42]
    assert min(waits(arena=("sram",))) > 0  # tensors in SRAM


def test_each_tensor_lies_in_its_memory_and_what_does_not_fit_in_the_largest():
    """Of two inputs, a result and the working memory, each of 400 bytes or none."""
    target = find_target("cortex-m55")
    fast, *slower = (replace(memory, caches=()) for memory in simulation_of(target).trials.arena)

    def waits(memories: tuple[int, ...], size: int = fast.size) -> int:
        layout = replace(simulation_of(target).trials, arena=(replace(fast, size=size), *slower))
        (found,) = replace(MEASURE, layout=layout)(replace(MaximumTask(), memories=memories), [Schedule("good")])
        assert found.ok
        return found.waits

    sram, ddr = waits((1, 1, 1, 0)), waits((2, 2, 2, 2))
    assert waits(()) == waits((0, 0, 0, 1)) == 0 < waits((0, 1, 0, 0)) < sram < ddr
    assert waits((0, 0, 0, 0), size=256) == sram  # the first of the largest


def test_what_does_not_fit_in_the_largest_memory_lies_in_another():
    """Three tensors of 400 bytes as they are expected, and the same with guards around them."""
    trials = simulation_of(find_target("cortex-m55")).trials
    small = replace(trials, arena=tuple(replace(memory, size=1408) for memory in trials.arena))
    (found,) = replace(MEASURE, layout=small)(MaximumTask(), [Schedule("good")])
    assert found.ok, found
    (found,) = replace(MEASURE, layout=replace(small, arena=small.arena[:1]))(MaximumTask(), [Schedule("good")])
    assert (found.status, found.message) == (
        "illegal",
        "its tensors and working memory do not fit the memory for trials",
    )


def test_a_trial_finds_its_inputs_in_the_cache_and_nothing_else():
    """Of two inputs, just written, and a result of 400 bytes only the lines of the result are filled."""
    memory = find_target("cortex-m55", arena=["sram"]).trials
    found = [replace(MEASURE, layout=memory)(MaximumTask(), [Schedule(name)] * 2) for name in ("good", "good")]
    assert {m.waits for batch in found for m in batch} == {found[0][0].waits}
    assert found[0][0].waits in (13 * 42, 14 * 42)


def test_a_candidate_that_is_sure_to_be_slower_than_the_best_is_given_up():
    schedules = [Schedule(name) for name in ("good", "long", "hang", "good")]
    best = Measurement("ok", instructions=1_000_000, cycles=1_500_000, waits=500_000)
    found = replace(MEASURE, region_limit=10**9)(MaximumTask(), schedules, best)
    assert [m.status for m in found] == ["ok", "ok", "slow", "ok"]
    assert 3_000_000 < found[1].instructions < 4_000_000
    assert found[2].message == "region 2 executed more than 4000000 instructions"
    alone = MEASURE(MaximumTask(), schedules[:2], replace(best, instructions=10, cycles=20, waits=0))
    assert [m.status for m in alone] == ["ok", "slow"]  # starting another run costs 2,000,000 instructions


def test_nothing_is_left_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    measure(["good", "crash"])
    assert list(tmp_path.iterdir()) == []


def test_shifts_are_below_the_width_of_what_is_shifted():
    (((_, amounts), _), *_) = examples(
        """
        func.func @main(%values: tensor<40xi8>, %amounts: tensor<40xi8>) -> tensor<40xi8> {
          %0 = tosa.arithmetic_right_shift %values, %amounts {round = false}
              : (tensor<40xi8>, tensor<40xi8>) -> tensor<40xi8>
          return %0 : tensor<40xi8>
        }"""
        , seed=1,
    )  # fmt: skip
    assert set(amounts.flat) == set(range(8))


def test_indices_of_a_gather_are_within_bounds():
    (((_, indices), (rows,)), *_) = examples(
        """
        func.func @main(%values: tensor<1x7x3xi8>, %indices: tensor<1x20xi32>) -> tensor<1x20x3xi8> {
          %0 = tosa.gather %values, %indices : (tensor<1x7x3xi8>, tensor<1x20xi32>) -> tensor<1x20x3xi8>
          return %0 : tensor<1x20x3xi8>
        }""",
        seed=1,
    )
    assert set(indices.flat) == set(range(7)) and rows.shape == (1, 20, 3)


def test_a_wrong_rounding_is_found_where_random_data_saturate():
    """Of 1x8 results of x * 19.5 at most one in twenty is within int8: the others hide how they were rounded."""
    graph = Graph()
    module = str(graph.module(graph.rescale(graph.input((1, 8), "i8"), "i8", 39 << 20, 21)))
    first, *further = examples(module, MEASURE.seed)
    assert first.telling < 3 and sum(example.telling for example in further) > 30

    def body(half: int) -> str:
        value = f"(((const signed char *)a)[i] * 39 + {half} >> 1)"
        clamped = f"{value} < -128 ? -128 : {value} > 127 ? 127 : {value}"
        return f"for (int i = 0; i < 8; i++) ((signed char *)out)[i] = {clamped}; (void)params, (void)scratch;"

    @dataclass(frozen=True)
    class RescaleTask(MaximumTask):
        def generate(self, schedule: Schedule) -> KernelSource:
            symbol, text = f"rescale_{schedule.variant}", body(int(schedule.variant == "rounding"))
            return KernelSource(
                symbol, "c", f"void {symbol}(const int *a, int *out, const int *params, int *scratch) {{ {text} }}"
            )

    found = MEASURE(RescaleTask(module=module), [Schedule("rounding"), Schedule("truncating")])
    assert [m.status for m in found] == ["ok", "wrong"]
    assert found[0].instructions < 300  # of one call


def test_data_are_followed_by_others_of_their_values():
    """One result of int32 tells one rounding; sums of other values, each within what the data hold, tell more."""
    graph = Graph()
    total = graph.reduce("reduce_sum", graph.input((1, 8), "i32"), 1)
    module = str(graph.module(graph.rescale(total, "i8", 1 << 30, 36)))
    data = np.array([[-700, 50, 0, 300, 1000, -20, 7, 7]], np.int32)
    tried = examples(module, MEASURE.seed, (data.tobytes(),))
    assert np.array_equal(tried[0].inputs[0], data)
    assert all(np.isin(example.inputs[0], data).all() for example in tried)
    assert sum(example.telling for example in tried) >= 60
    assert len({int(example.outputs[0].item()) for example in tried}) > 8


def test_values_that_belong_together_are_drawn_only_where_the_result_is_defined():
    """The sums of the data are within int32, of others of their values some are not."""
    graph = Graph()
    total = graph.binary("add", graph.input((1, 4), "i32"), graph.input((1, 4), "i32"))
    module = str(graph.module(graph.rescale(total, "i8", 1 << 30, 56)))
    data = np.array([[2_000_000_000, 5, -2_000_000_000, 7]], np.int32), np.array([[9, 2_000_000_000, 9, -9]], np.int32)
    first, *further = examples(module, MEASURE.seed, tuple(array.tobytes() for array in data))
    sums = [np.sum([array.astype(np.int64) for array in example.inputs], axis=0) for example in further]
    assert further and np.abs(sums).max() < 2**31
    assert sum(example.telling for example in (first, *further)) >= 60


class Uncounted(Qemu):
    def run(self, *arguments, **options):
        return super().run(*arguments, **options | {"count": False, "region_limit": None})


def test_a_machine_that_does_not_count_cannot_measure():
    with pytest.raises(BackendError, match="does not tell what a trial costs"):
        measure(["good"], machine=Uncounted(CORTEX_M55, MPS3_AN547))


def test_a_kernel_of_as_many_tensors_as_tosa_joins():
    names = [f"a{i}" for i in range(64)]
    arguments, types = ", ".join(f"%{name}: tensor<1xi32>" for name in names), ", ".join(["tensor<1xi32>"] * 64)
    joined = f"tosa.concat {', '.join(f'%{name}' for name in names)} {{axis = 0 : i32}} : ({types}) -> tensor<64xi32>"
    module = f"func.func @main({arguments}) -> tensor<64xi32> {{ %0 = {joined} return %0 : tensor<64xi32> }}"

    @dataclass(frozen=True)
    class JoinTask(MaximumTask):
        def generate(self, schedule: Schedule) -> KernelSource:
            given = ", ".join(f"const int *{name}" for name in names)
            body = " ".join(f"out[{i}] = *{name};" for i, name in enumerate(names))
            body += " out[9] += *params - 5; *scratch = 1;"
            text = f"void join({given}, int *out, const int *params, int *scratch) {{ {body} }}"
            return KernelSource("join", "c", text, np.array([5], np.int32).tobytes(), scratch_bytes=4)

    (found,) = MEASURE(JoinTask(module=module), [Schedule("good")])
    assert (found.status, found.message) == ("ok", "")


def test_too_many_tensors_is_an_error():
    arguments = ", ".join(f"%a{i}: tensor<1xi32>" for i in range(66))
    module = f"func.func @main({arguments}) -> tensor<1xi32> {{ return %a0 : tensor<1xi32> }}"
    with pytest.raises(BackendError, match="67 inputs and outputs"):
        MEASURE(MaximumTask(module=module), [Schedule("good")])


def test_examples_stay_where_results_are_defined():
    """A RESCALE by nearly 2^29 has results in 32 bits for zero alone."""
    (first, *_) = examples(
        """
        func.func @main(%x: tensor<40xi8>) -> tensor<40xi32> {
          %m = "tosa.const"() <{values = dense<2147483647> : tensor<1xi32>}> : () -> tensor<1xi32>
          %s = "tosa.const"() <{values = dense<2> : tensor<1xi8>}> : () -> tensor<1xi8>
          %z = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
          %o = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
          %0 = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false,
            rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<40xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>,
            tensor<1xi32>) -> tensor<40xi32>
          return %0 : tensor<40xi32>
        }""",
        0,
    )
    assert np.abs(first.inputs[0].astype(int)).max() <= 3
