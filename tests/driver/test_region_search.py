"""Of what Vela makes of a region under several limits, the best that fits and is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tosa_graphs import Graph

from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import compile_region
from tosaic.backends.npu import NpuOptions
from tosaic.backends.reference import evaluate, serialize
from tosaic.compiler import placement
from tosaic.compiler.placement import place_on
from tosaic.compiler.region_search import better_regions, bytes_beside, is_alone
from tosaic.passes import first_difference, random_inputs
from tosaic.support.functions import functions_on, note_states, standalone
from tosaic.support.mlir import ir
from tosaic.target_files.ready import find_target


def wide() -> ir.Module:
    """Two 3x3 convolutions with 32 kB between, which a cascade need not hold."""
    rng, graph = np.random.default_rng(0), Graph()
    x = graph.input((1, 32, 32, 4))
    for channels in (32, 4):
        depth = x.type.shape[-1]
        weights = rng.integers(-127, 128, (channels, 3, 3, depth))
        y = graph.conv2d(x, weights, np.zeros(channels), pad=(1, 1, 1, 1))
        x = graph.requantize(y, "i8", 0.002)
    return graph.module(x)


@pytest.fixture(scope="module")
def flatbuffer() -> bytes:
    return serialize(wide())


def test_what_fits_is_better_than_what_is_fast(flatbuffer):
    usual = compile_region(flatbuffer, "ethos-u55-128")
    better = better_regions(flatbuffer, usual, room=20_000)
    assert usual.scratch_bytes > 20_000 >= better[0].scratch_bytes
    assert better[0].options.arena_limit is not None
    inputs = random_inputs(wide(), 0)
    for region in better:
        assert not first_difference(evaluate(flatbuffer, inputs), emulate(region, inputs).outputs)


def test_with_room_for_all_only_what_is_no_slower_is_better(flatbuffer):
    usual = compile_region(flatbuffer, "ethos-u55-128")
    assert all(region.cycles <= usual.cycles for region in better_regions(flatbuffer, usual, room=1 << 20))


def test_an_arena_that_the_usual_region_does_not_fit(monkeypatch):
    target = find_target("corstone-300", arena_size=28_000)
    samples = [random_inputs(wide(), seed) for seed in (0, 1)]
    placed = place_on(target, [wide()], samples)
    (region,) = placed.regions.values()
    assert region.scratch_bytes + bytes_beside(placed.module, "npu_0") <= 28_000

    monkeypatch.setattr(placement, "region_difference", lambda *_: "wrong")
    (region,) = place_on(target, [wide()], samples).regions.values()
    assert region.options == NpuOptions()


def test_bytes_beside_a_call():
    graph = Graph()
    x, y = graph.input((1, 8, 8, 8)), graph.input((1, 8, 8, 8))
    z = graph.requantize(graph.conv2d(x, np.ones((8, 3, 3, 8)), np.zeros(8), pad=(1, 1, 1, 1)), "i8", 0.01)
    module = graph.module(graph.unary("identity", z), graph.reshape(y, (8, 64)))
    placed = place_on(replace(find_target("corstone-300")), [module], [random_inputs(module, 0)])
    (name,) = functions_on("npu", placed.module)
    assert standalone(functions_on("npu", placed.module)[name]).operation.verify()
    assert bytes_beside(placed.module, name) == 3 * 512


def test_the_target_says_what_vela_assumes(tosaic, tmp_path):
    options = ("--target", "corstone-300", "--memory-mode", "Sram_Only", "--system-config", "Ethos_U55_Deep_Embedded")
    result = tosaic("compile", "zoo:dscnn", *options, "-o", tmp_path / "build", "--records", tmp_path / "records.db")
    assert result.exit_code == 0, result.output
    assert "ethos-u55-128, Sram_Only, Ethos_U55_Deep_Embedded" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--memory-mode", "Sram_Onli", "there is no memory mode of Vela's `Sram_Onli`"),
        ("--system-config", "Ethos_U5", "there is no system configuration of Vela's `Ethos_U5`"),
    ],
)
def test_unknown_sections_are_named(refused, tmp_path, option, value, message):
    words = refused("compile", "zoo:dscnn", "--target", "corstone-300", option, value, "-o", tmp_path / "build")
    assert message in words and "did you mean" in words


def narrowing() -> ir.Module:
    """Three 1x1 convolutions, of which the first reads the most."""
    rng, graph = np.random.default_rng(0), Graph()
    x = graph.input((1, 16, 16, 64))
    for channels in (32, 32, 16):
        y = graph.conv2d(x, rng.integers(-127, 127, (channels, 1, 1, x.type.shape[-1])), np.zeros(channels))
        x = graph.requantize(y, "i8", 0.002)
    return graph.module(x)


def test_inputs_and_outputs_of_all_of_a_model_lie_in_its_working_memory():
    target, module = find_target("corstone-300"), narrowing()
    placed = place_on(target, [module], [random_inputs(module, 0)])
    (region,) = placed.regions.values()
    assert {port.region for port in (*region.inputs, *region.outputs)} == {1}
    usual = compile_region(serialize(narrowing()), "ethos-u55-128")
    assert region.cycles <= usual.cycles
    assert region.scratch_bytes < usual.scratch_bytes + usual.inputs[0].size


def test_where_memory_is_short_forms_that_need_less_are_tried(monkeypatch):
    modules, asked = [wide(), narrowing()], []

    def smaller() -> list[ir.Module]:
        asked.append(True)
        return modules[1:]

    samples = [random_inputs(modules[0], 0)]
    place_on(find_target("corstone-300"), modules[:1], samples, smaller=smaller)
    assert not asked
    monkeypatch.setattr(placement, "settled", lambda attempt, *_: attempt)
    placed = place_on(find_target("corstone-300", arena_size=26_000), modules[:1], samples, smaller=smaller)
    assert asked and "16x16x64" in str(placed.module)


def test_a_state_keeps_regions_apart():
    module = wide()
    placed = place_on(find_target("corstone-300"), [module], [random_inputs(module, 0)])
    assert is_alone(placed.module, "npu_0")
    note_states(placed.module, 1)
    assert not is_alone(placed.module, "npu_0")
