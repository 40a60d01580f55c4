"""The emulator on whole networks, and its errors: damaged streams and weights, bad memory, missing waits, overlaps."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from mobilenet_v2 import mobilenet_v2
from mutate import flip, mutations, network
from tosa_graphs import Graph, random_inputs

from tosaic.backends import reference
from tosaic.backends.ethos_u.disassembler import disassemble
from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.emulator import execute
from tosaic.backends.ethos_u.emulator.memory import RegionMemory
from tosaic.backends.ethos_u.emulator.stream import command_words, commands
from tosaic.backends.ethos_u.vela import compile_region
from tosaic.backends.npu import EmulationError, NpuOptions, NpuRegion
from tosaic.support.errors import SimulatorError

DMA_WAIT, KERNEL_WAIT, BLOCKDEP, OFM_BASE0, IFM_BASE0, STOP = 17, 18, 303, 16, 0, 0


@dataclasses.dataclass
class Case:
    region: NpuRegion
    inputs: list[np.ndarray]


@pytest.fixture(scope="module", params=["ethos-u55-128", "ethos-u85-256"])
def case(request) -> Case:
    rng = np.random.default_rng(3)
    graph, flatbuffer = network(rng)
    return Case(compile_region(flatbuffer, request.param), random_inputs(rng, graph))


def with_words(region: NpuRegion, words: np.ndarray) -> NpuRegion:
    return dataclasses.replace(region, command_stream=words.astype("<u4").tobytes())


def changed(case: Case, code: int, change, *, wide: bool = False) -> NpuRegion:
    """The region with `change(words, index)` applied to each command of that code."""
    words = command_words(case.region.command_stream).copy()
    for command in list(commands(words)):
        if command.code == code and (command.payload is not None) == wide:
            change(words, command.offset // 4)
    return with_words(case.region, words)


def listed(region: NpuRegion, where: Sequence[str] = ()) -> str:
    return disassemble(region.command_stream, region.accelerator, region.ops, where)


def test_bare_words_and_cop2_run_like_cop1(case: Case):
    bare = dataclasses.replace(case.region, command_stream=case.region.commands)
    expected = emulate(case.region, case.inputs).outputs[0]
    np.testing.assert_array_equal(emulate(bare, case.inputs).outputs[0], expected)


def test_the_report_places_each_op_and_its_accesses(case: Case):
    report = emulate(case.region, case.inputs).report
    assert report.counts["NPU_OP_DEPTHWISE"] >= 1 and report.counts["NPU_OP_CONV"] >= 2
    assert [op.offset for op in report.ops] == sorted(op.offset for op in report.ops)
    assert any(access.region == 3 and not access.write for op in report.ops for access in op.accesses)


@pytest.mark.parametrize("length", [0, 3, 4, 40, 400])
def test_a_stream_cut_short_is_an_error(case: Case, length: int):
    with pytest.raises(EmulationError):
        emulate(dataclasses.replace(case.region, command_stream=case.region.command_stream[:length]), case.inputs)


def test_an_unknown_command_is_placed(case: Case):
    words = command_words(case.region.command_stream).copy()
    words[0] = 999
    with pytest.raises(EmulationError, match=r"CMD0 999 is no command of Ethos-U(55|85)\n  at: a command at byte 0"):
        emulate(with_words(case.region, words), case.inputs)


def test_a_missing_stop_is_an_error(case: Case):
    words = command_words(case.region.command_stream)[:-1]
    with pytest.raises(EmulationError, match="ends without NPU_OP_STOP"):
        emulate(with_words(case.region, words), case.inputs)


def test_a_write_beyond_its_region_is_an_error(case: Case):
    def move(words, index):
        words[index + 1] = 0x7000_0000

    with pytest.raises(EmulationError, match=r"writes bytes 0x700.* of region \d, which has") as caught:
        emulate(changed(case, OFM_BASE0, move, wide=True), case.inputs)
    assert caught.value.command == "NPU_OP_CONV" and caught.value.offset > 0


def test_reading_what_nothing_wrote_is_an_error(case: Case):
    memory = {
        0: np.frombuffer(case.region.constants, np.uint8).copy(),
        1: np.zeros(case.region.scratch_bytes, np.uint8),
        2: np.zeros(case.region.fast_bytes, np.uint8),
        3: np.zeros(case.region.inputs[0].size, np.uint8),
        4: np.zeros(case.region.outputs[0].size, np.uint8),
    }
    with pytest.raises(EmulationError, match="reads bytes of region 3 between 0x0 and 0x640 that nothing has written"):
        execute(case.region.command_stream, memory, case.region.accelerator, written=(0,))


def test_a_transfer_may_carry_padding_that_nothing_wrote_and_nothing_may_read_it():
    memory = RegionMemory({1: np.zeros(96, np.uint8)}, (), 0)
    memory.write(1, 0, (1,), np.arange(20, dtype=np.uint8))
    memory.copy(1, 0, 1, 48, 32)
    np.testing.assert_array_equal(memory.read(1, 48, (20,), (1,), "u1"), np.arange(20))
    for attempt in (lambda: memory.read(1, 48, (21,), (1,), "u1"), lambda: memory.copy(1, 0, 1, 48, 48)):
        with pytest.raises(EmulationError, match="that nothing has written"):
            attempt()


def test_a_missing_dma_wait_is_an_error(case: Case):
    def drop(words, index):
        words[index] = KERNEL_WAIT | 3 << 16

    with pytest.raises(EmulationError, match="a DMA_WAIT is missing before it"):
        emulate(changed(case, DMA_WAIT, drop), case.inputs)


def test_blocks_that_overlap_beyond_blockdep_are_an_error(case: Case):
    def most(words, index):
        words[index] = BLOCKDEP | 3 << 16

    with pytest.raises(EmulationError, match=r"BLOCKDEP is 3"):
        emulate(changed(case, BLOCKDEP, most), case.inputs)


def test_damaged_weights_are_an_error_or_another_result(case: Case):
    rng = np.random.default_rng(8)
    expected = emulate(case.region, case.inputs).outputs[0]
    fates = set()
    for _ in range(40):
        damaged = flip(case.region, rng)
        if damaged.constants == case.region.constants:
            continue
        try:
            fates.add(bool((emulate(damaged, case.inputs).outputs[0] != expected).any()))
        except EmulationError as error:
            fates.add(error.command.startswith("NPU_OP_"))
    assert True in fates


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_three_hundred_bit_flips_kill_nothing_and_most_are_noticed(accelerator: str):
    fates = mutations(accelerator, 300)
    assert sum(fates.values()) == 300
    assert fates["error"] + fates["different"] >= 150


def test_inputs_must_fit(case: Case):
    with pytest.raises(SimulatorError, match="takes 1 inputs, got 0"):
        emulate(case.region, [])
    with pytest.raises(SimulatorError, match=r"input 0 is int8\(1, 10, 10, 16\), got int16"):
        emulate(case.region, [case.inputs[0].astype(np.int16)])


@pytest.mark.parametrize(("accelerator", "memory_mode"), [
    ("ethos-u55-32", None), ("ethos-u55-64", None), ("ethos-u55-256", "Sram_Only"), ("ethos-u65-256", "Shared_Sram"),
    ("ethos-u85-128", None), ("ethos-u85-512", "Sram_Only"), ("ethos-u85-1024", None),
    ("ethos-u85-2048", "Shared_Sram"),
])  # fmt: skip
def test_a_small_network_is_exact_everywhere(accelerator: str, memory_mode: str | None):
    rng = np.random.default_rng(5)
    graph, flatbuffer = network(rng)
    inputs = random_inputs(rng, graph)
    region = compile_region(flatbuffer, accelerator, NpuOptions(memory_mode=memory_mode))
    np.testing.assert_array_equal(emulate(region, inputs).outputs[0], reference.evaluate(flatbuffer, inputs)[0])


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-1024"])
def test_mobilenet_v2_is_exact(accelerator: str):
    graph, module = mobilenet_v2(96, 0.35)
    flatbuffer = reference.serialize(module)
    inputs = random_inputs(np.random.default_rng(1), graph)
    found = emulate(compile_region(flatbuffer, accelerator, NpuOptions(arena_limit=100_000)), inputs).outputs[0]
    np.testing.assert_array_equal(found, reference.evaluate(flatbuffer, inputs)[0])


def test_the_listing_names_ops_shapes_and_lines(case: Case):
    listing = listed(case.region, [f"model.py:{line}" for line in range(100)])
    assert "NPU_OP_DEPTHWISE  ; DEPTHWISE_CONV2D #" in listing and "at model.py:" in listing
    assert "3x3 stride 1x1" in listing and "per channel, region" in listing
    assert "ifm      10x10x16 i8 NHWC region 3 at 0x0" in listing and "ofm      5x5x16 i8" in listing
    assert "table memory" in listing and listing.rstrip().endswith("NPU_OP_STOP")


def test_the_listing_tells_chain_buffers_scalars_and_computed_weights():
    graph = Graph()
    x, y = graph.input((1, 8, 8, 16)), graph.input((1, 32, 64))
    convolved = graph.requantize(graph.conv2d(x, np.ones((16, 1, 1, 16)), np.zeros(16)), "i8", 0.1)
    terms = [graph.requantize(v, "i32", 2.0**19) for v in (convolved, graph.const([[[[7]]]], "i8"))]
    total = graph.reshape(graph.requantize(graph.binary("add", *terms), "i8", 2.0**-19), (1, 16, 64))
    product = graph.requantize(graph.matmul(total, graph.transpose(y, (0, 2, 1))), "i8", 0.01)
    listing = listed(compile_region(reference.serialize(graph.module(product)), "ethos-u85-256"))
    for line in (
        "ofm      8x8x16 i8 chain buffer 0 zero 0",
        "ifm2     scalar 7 zero 0",
        "scale    inputs 524288 and 524288; 1 >> 19 rounded natural",
        "zero 0 stored as HCW",
        "ifm2     1x32x64 i8 NHCWB16",
    ):
        assert line in listing


def test_a_damaged_stream_is_listed_up_to_the_damage():
    with pytest.raises(EmulationError, match="at byte 4 of the command stream"):
        disassemble(np.array([0x0100_0130, 0x3FF], "<u4").tobytes(), "ethos-u55-128")


def test_a_wrong_placement_is_seen():
    """CAST narrowing clamps on U55 where TOSA truncates: what the placement rule keeps away, the emulator catches."""
    graph = Graph()
    flatbuffer = reference.serialize(graph.module(graph.unary("cast", graph.input((1, 4, 4, 8), "i16"), "i8")))
    inputs = [np.arange(-64, 64, dtype=np.int16).reshape(1, 4, 4, 8) * 300]
    found = emulate(compile_region(flatbuffer, "ethos-u55-128"), inputs).outputs[0]
    assert (found != reference.evaluate(flatbuffer, inputs)[0]).any()
