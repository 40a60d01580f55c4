"""Kernel tasks: one space of all families, keys without weights, content-addressed symbols."""

from __future__ import annotations

import gc
import pickle
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from board import M4
from drop_in import install
from tosa_graphs import Graph

from tosaic.backends.boards import MPS3_AN547
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.cmsis_nn import LIBRARY, CmsisNn
from tosaic.backends.cortex_m.kernel import FAMILIES, Site
from tosaic.backends.cortex_m.program import guesses, kernel
from tosaic.backends.cortex_m.program.list_scheduler import ordered
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.backends.target import Core
from tosaic.support.errors import BackendError
from tosaic.support.mlir import functions
from tosaic.target_files.ready import find_target
from tosaic.tuner.space import Schedule


def _conv(seed: int, channels: int = 16, core: Core = CORTEX_M55, families: tuple[str, ...] = ()) -> KernelTask:
    rng, g = np.random.default_rng(seed), Graph()
    weights, bias = rng.integers(-127, 128, (channels, 3, 3, 16)), rng.integers(-1000, 1000, channels)
    y = g.conv2d(g.input((1, 8, 8, 16)), weights, bias, pad=(1, 1, 1, 1))
    module = g.module(g.requantize(y, "i8", rng.uniform(0.001, 0.02, channels)))
    (function,) = functions(module).values()
    return KernelTask.of(function, core, families)


def test_equal_workloads_share_a_key_whatever_the_weights():
    assert _conv(0).key == _conv(1).key
    assert _conv(0).key != _conv(0, channels=8).key
    assert _conv(0).key != _conv(0, core=M4.core).key
    assert _conv(0).key != _conv(0, families=("linalg",)).key


def test_kernels_that_differ_in_weights_only_are_one_symbol():
    first, second = (_conv(seed, families=("linalg",)) for seed in (0, 1))
    a, b = first.generate(first.default()), second.generate(second.default())
    assert (a.symbol, a.text) == (b.symbol, b.text)
    assert a.params != b.params


def test_all_families_that_match_share_one_space():
    families = {variant.name.partition(".")[0] for variant in _conv(0).space.variants}
    assert {"conv2d", "linalg"} <= families
    assert _conv(0).space.variants[-1].name == "linalg.loops"


def test_a_kernel_is_generated_once_as_long_as_somebody_has_it():
    task = _conv(0)
    first = task.generate(task.default())
    assert task.generate(task.default()) is first
    params = first.params
    del first
    assert not task._sources
    assert task.generate(task.default()).params == params


def test_orders_that_do_not_fit_the_registers_hold_no_kernel():
    task = _conv(0)
    schedule = task.default()
    for caches in (kernel._outcome, ordered):
        caches.cache_clear()
    gc.disable()
    try:
        task.generate(schedule)
        assert not task._sources
    finally:
        gc.enable()


class _Refused(NamedTuple):
    def program(self):
        raise RefusedError("there is no such program")


def test_a_refusal_that_is_remembered_holds_no_frame():
    what: Any = _Refused()
    for _ in range(2):
        with pytest.raises(RefusedError, match="there is no such program"):
            kernel.built(what, (), CORTEX_M55)
    found = kernel._outcome(what, (), CORTEX_M55)
    assert isinstance(found, RefusedError) and found.__traceback__ is None


def test_a_guess_that_fits_the_working_memory_is_made_once(monkeypatch):
    g = Graph()
    x, y = (g.rescale(g.input((1, 8, 8, 16)), "i32", 1 << 30, 30) for _ in range(2))
    (function,) = functions(g.module(g.requantize(g.binary("add", x, y), "i8", 0.37))).values()
    task, made = KernelTask.of(function, CORTEX_M55), list[str]()
    monkeypatch.setattr(guesses, "remembered", lambda name, code, material, compute: made.append(name) or compute())
    free = task.at(Site()).default()
    count = len(made)
    assert count and task.at(Site(most_scratch=1 << 20)).default() == free
    assert len(made) == 2 * count


def test_families_can_be_restricted_where_they_apply():
    assert [v.name for v in _conv(0, families=("linalg",)).space.variants] == ["linalg.loops"]
    assert len(_conv(0, families=("pool",)).space.variants) == len(_conv(0).space.variants)


def test_a_core_without_mve_gets_a_program_a_library_and_the_generic_kernel_all_proven_on_its_board():
    library = CmsisNn.find()
    assert library is not None
    task = replace(_conv(0, core=M4.core), libraries=((LIBRARY, library.root),))
    names = ["conv2d.program", "cmsis_nn.arm_convolve_wrapper_s8", "linalg.loops"]
    assert [variant.name for variant in task.space.variants] == names
    schedules = [schedule for variant in task.space.variants if (schedule := variant.first())]
    include, libraries = tuple(library.include), (library.archive(M4.core),)
    measure = BatchMeasure(Qemu(M4.core, M4.board), M4.core, M4.layout, include=include, libraries=libraries)
    program, library_kernel, slow = measure(task, schedules)
    assert program.ok and library_kernel.ok and slow.ok and program.cycles is None
    assert program.instructions < library_kernel.instructions and 2 * library_kernel.instructions < slow.instructions


def test_a_task_travels_to_another_process():
    task = _conv(0)
    data = pickle.dumps(task)
    assert task.exact and task.key and task.name and task.space is task.space
    assert pickle.dumps(task) == data
    copy = pickle.loads(data)
    assert copy == task
    assert copy.generate(copy.default()) == task.generate(task.default())


def test_the_name_says_what_and_how_big():
    assert _conv(0).name == "conv2d+rescale 1x8x8x16"


def test_a_schedule_of_an_unknown_family_is_refused():
    with pytest.raises(BackendError, match="no kernel family `magic` covers this function"):
        _conv(0).generate(Schedule.of("magic.wand"))


REVERSAL = '''
from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.support.mlir import shape_of
from tosaic.tuner.space import Variant

@FAMILIES.register
class Added(KernelFamily):
    """REVERSE of a row of bytes."""

    name = "reversal"

    def match(self, function):
        op, _ = function.regions[0].blocks[0].operations
        if op.operation.name != "tosa.reverse":
            return None
        (length,) = shape_of(op.operands[0])
        return Workload("reversal", f"length={length}", {"length": length}, {})

    def variants(self, workload, core):
        return (Variant("bytes", {"first": (1, 0)}),)

    def generate(self, workload, schedule, core):
        length, first = workload.attributes["length"], schedule["first"]
        symbol = f"reversal_{length}_{first}"
        text = f"""void {symbol}(const signed char *in, signed char *out, const void *params, void *scratch)
{{ for (int i = 0; i < {length}; i++) out[i] = in[{length} - {first} - i]; }}"""
        return KernelSource(symbol, "c", text)

    def features(self, workload, schedule, core):
        return {"length": workload.attributes["length"]}
'''


def test_another_package_adds_a_family_and_its_kernels_are_proven(tmp_path, monkeypatch):
    install(FAMILIES, "reversal", REVERSAL, tmp_path, monkeypatch)
    g = Graph()
    (function,) = functions(g.module(g.unary("reverse", g.input((33,)), axis=0))).values()
    task = KernelTask.of(function, CORTEX_M55)
    schedules = list(task.space.schedules())
    assert [str(schedule) for schedule in schedules] == [
        "reversal.bytes(first=1)", "reversal.bytes(first=0)", "linalg.loops()",
    ]  # fmt: skip
    assert task.key.splitlines()[1] == "reversal: length=33"
    assert task.features(task.default()) == {"reversal.length": 33}
    measured = BatchMeasure(Qemu(CORTEX_M55, MPS3_AN547), CORTEX_M55, find_target("cortex-m55").trials)(task, schedules)
    assert [measurement.status for measurement in measured] == ["ok", "wrong", "ok"]


def test_a_special_case_is_asked_first_and_the_generic_family_last_behind_a_library():
    ranks = {name: family.rank for name, family in FAMILIES.known().items()}
    special = {"loop": -1, "pool": -1}
    assert {name: rank for name, rank in ranks.items() if rank} == special | {"cmsis_nn": 1, "linalg": 2}
