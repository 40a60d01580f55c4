"""Regions as Vela compiles them."""

import os
import signal

import numpy as np
import pytest
from op_rows import ROWS
from tosa_graphs import Graph

from tosaic.backends import reference
from tosaic.backends.ethos_u import vela
from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.ethos_u.emulator.stream import command_words
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.backends.npu import NpuOptions, NpuPort
from tosaic.support.errors import BackendError, Error


@pytest.fixture(scope="module")
def small_net() -> bytes:
    rng = np.random.default_rng(0)
    graph = Graph()
    x = graph.input((1, 16, 16, 8))
    y = graph.conv2d(x, rng.integers(-127, 128, (24, 3, 3, 8)), np.zeros(24), pad=(1, 1, 1, 1))
    y = graph.clamp(graph.requantize(y, "i8", 0.001), -20, 60)
    return reference.serialize(graph.module(graph.pool("avg", y, (2, 2), (2, 2)), y))


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_every_accelerator_compiles(small_net: bytes, accelerator: str):
    region = compile_region(small_net, accelerator)
    assert region.accelerator == accelerator
    assert region.command_stream[:4] == b"COP1"
    assert region.inputs == (NpuPort(3, 0, 2048, (1, 16, 16, 8), "int8"),)
    assert [(port.region, port.size, port.shape) for port in region.outputs] == [
        (4, 1536, (1, 8, 8, 24)),
        (4, 6144, (1, 16, 16, 24)),
    ]
    assert region.cycles > 0 and sum(region.memory.values()) > 0


def test_ops_carry_their_origin_and_stream_offsets(small_net: bytes):
    region = compile_region(small_net, "ethos-u55-128")
    named = {op.op: op for op in region.ops}
    assert set(named) == {"CONV2D", "CLAMP", "AVG_POOL2D"}
    assert named["CONV2D"].macs == 16 * 16 * 24 * 9 * 8
    assert all(0 < offset <= len(region.commands) for op in region.ops for offset in op.offsets)
    assert len(region.commands) == 4 * len(command_words(region.command_stream))


def test_memory_modes_and_strategies(small_net: bytes):
    shared = compile_region(small_net, "ethos-u85-256", NpuOptions(memory_mode="Sram_Only"))
    assert shared.fast_bytes == 0 < shared.scratch_bytes + shared.outputs[0].size
    assert compile_region(small_net, "ethos-u85-256").memory != shared.memory
    assert compile_region(small_net, "ethos-u55-128", NpuOptions(optimize="Size", arena_limit=20000)).cycles > 0
    with pytest.raises(Error, match="no memory mode of Vela's `Sram`"):
        compile_region(small_net, "ethos-u55-128", NpuOptions(memory_mode="Sram"))
    with pytest.raises(Error, match="no system configuration of Vela's `Ethos_U55`"):
        compile_region(small_net, "ethos-u55-128", NpuOptions(system_config="Ethos_U55"))
    with pytest.raises(BackendError, match="no strategy `Speed`"):
        compile_region(small_net, "ethos-u55-128", NpuOptions(optimize="Speed"))


def test_a_refusal_names_the_op():
    flatbuffer = reference.serialize(ROWS["logical_right_shift i32"].graph()[1])
    with pytest.raises(VelaRefusal, match="Vela refused LOGICAL_RIGHT_SHIFT for ethos-u55-128") as caught:
        compile_region(flatbuffer, "ethos-u55-128")
    assert caught.value.op == "LOGICAL_RIGHT_SHIFT"


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_crash_of_vela_is_an_answer(small_net: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vela, "_compile", die)
    with pytest.raises(VelaRefusal, match="Vela's process died"):
        compile_region(small_net, "ethos-u55-128")


def test_garbage_is_refused():
    with pytest.raises(VelaRefusal):
        compile_region(b"\x00" * 64, "ethos-u55-128")


def test_nothing_is_printed(capfd: pytest.CaptureFixture, small_net: bytes):
    compile_region(small_net, "ethos-u55-128")
    assert capfd.readouterr() == ("", "")
