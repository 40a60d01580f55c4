"""Compile a TOSA flatbuffer for an Ethos-U with Vela's Regor, called in process and kept in a forked child."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import numpy as np

from tosaic.backends.ethos_u.accelerators import Accelerator, find_accelerator
from tosaic.backends.ethos_u.emulator.stream import command_words
from tosaic.backends.ethos_u.schedule import NpuOp, NpuTensor, Schedule
from tosaic.backends.target import Target
from tosaic.support.child import in_child
from tosaic.support.errors import BackendError, unknown_name

_T = TypeVar("_T")


class VelaRefusal(BackendError):  # noqa: N818 (an answer of the compiler's, more than an error)
    """Vela did not take the region. `op` is the TOSA op it names, e.g. `CONV2D`; empty where it names none."""

    def __init__(self, message: str, accelerator: str) -> None:
        found = re.search(r"operation \((\w+)\)", message) or re.search(r"Validation error:\s*(\w+):", message)
        self.op = _tosa_name(found[1]) if found else ""
        super().__init__(
            f"Vela refused {self.op or 'the region'} for {accelerator}",
            why=" ".join(message.removeprefix("Compilation failed:").split()),
            hint="leave that op to the CPU",
        )


@dataclass(frozen=True)
class VelaOptions:
    """How Vela shall compile a region.

    Args:
        memory_mode, system_config: sections of `config` or of Vela's `vela.ini`; None takes the
            accelerator's usual one.
        optimize: `Performance`, or `Size` for the smallest arena.
        arena_limit: bytes that `Performance` may use for the arena (fast memory where it is dedicated).
        separate_io: whether inputs and outputs have regions of their own, else they lie in region 1.
        config: further sections in the format of `vela.ini`, as text.
    """

    memory_mode: str | None = None
    system_config: str | None = None
    optimize: str = "Performance"
    arena_limit: int | None = None
    separate_io: bool = True
    config: str = ""

    @staticmethod
    def of(target: Target) -> VelaOptions:
        """As a target says."""
        return VelaOptions(target.memory_mode, target.system_config, config=target.vela_config)


@dataclass(frozen=True)
class NpuPort:
    """An input or output tensor of a region: `size` bytes at `address` of memory region `region`, dense, row-major.

    `dtype` is numpy's; a TOSA boolean is one byte.
    """

    region: int
    address: int
    size: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class NpuRegion:
    """A compiled region, all plain data.

    Memory regions: 0 the constants, 1 the scratch arena, 2 the fast memory (where `fast_bytes` > 0), 3 the inputs,
    4 the outputs. Base pointers are multiples of 16.

    Args:
        accelerator: Vela's name of the NPU it was compiled for.
        options: how it was compiled.
        command_stream: COP1 container, as Arm's core driver takes it; `commands` holds the bare command words.
        constants: bytes of region 0.
        scratch_bytes, fast_bytes: sizes of regions 1 and 2.
        inputs, outputs: in the order of `main`'s arguments and results.
        cycles: Vela's estimate for one run.
        ops: the schedule, in order.
        tensors: what lies in regions 1 and 2.
        memory: peak bytes per memory, as Vela names them.
    """

    accelerator: str
    options: VelaOptions
    command_stream: bytes
    constants: bytes
    scratch_bytes: int
    fast_bytes: int
    inputs: tuple[NpuPort, ...]
    outputs: tuple[NpuPort, ...]
    cycles: int
    ops: tuple[NpuOp, ...]
    tensors: tuple[NpuTensor, ...]
    memory: Mapping[str, int]

    @property
    def commands(self) -> bytes:
        """The command words, little-endian, without the container."""
        return command_words(self.command_stream).tobytes()

    @property
    def header(self) -> bytes:
        """The container's words before the commands, which end it."""
        return self.command_stream.removesuffix(self.commands)


def compile_region(flatbuffer: bytes, accelerator: str, options: VelaOptions = VelaOptions()) -> NpuRegion:
    """Compile `main` of a serialized TOSA module.

    Args:
        flatbuffer: what `tosaic.backends.reference.serialize` returns.
        accelerator: e.g. `ethos-u55-128`.

    Raises:
        VelaRefusal: Vela cannot compile the region, or crashed.
        BackendError: no such accelerator, memory mode, system configuration or strategy.
    """
    target = find_accelerator(accelerator)
    system = _system(target, options)
    if options.optimize not in ("Performance", "Size"):
        raise BackendError(f"Vela has no strategy `{options.optimize}`", hint="Performance, Size")
    try:
        return in_child(_compile, flatbuffer, target, system, options)
    except ChildProcessError:
        raise VelaRefusal("Vela's process died", accelerator) from None
    except RuntimeError as error:
        raise VelaRefusal(str(error), accelerator) from None


def _compile(flatbuffer: bytes, target: Accelerator, system: str, options: VelaOptions) -> NpuRegion:
    from ethosu import regor

    compiled = regor.compile(target.architecture, flatbuffer, "TOSA", system, options=_settings(options))
    return _region(compiled, flatbuffer, target, options)


def _system(target: Accelerator, options: VelaOptions) -> str:
    mode, system = options.memory_mode or target.memory_mode, options.system_config or target.system_config
    sections = vela_sections(options.config)
    for kind, name in (("memory mode", mode), ("system configuration", system)):
        if name not in sections[kind]:
            raise unknown_name(f"{kind} of Vela's", name, sections[kind])
    cores = 1 if target.generation == "u85" else target.cores  # Regor counts the cores of a U65 only
    head: dict[str, dict[str, Any]] = {
        "architecture": {"macs": target.macs // cores, "cores": cores},
        "vela": {"system_config_name": system, "memory_mode_name": mode},
    }
    return _ini(head) + _with_arms(options.config)


def vela_sections(config: str = "") -> dict[str, list[str]]:
    """The memory modes and system configurations of `config` and of Vela's `vela.ini`."""
    kinds, text = {"memory mode": "Memory_Mode", "system configuration": "System_Config"}, _with_arms(config)
    return {kind: re.findall(rf"^\[{section}\.(\w+)\]", text, re.M) for kind, section in kinds.items()}


def checked_config(text: str) -> str:
    """A text as further sections of Vela's configuration.

    Raises:
        BackendError: it has not the format; the message names the line.
    """
    parser = configparser.ConfigParser(inline_comment_prefixes=(";", "#"))
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise BackendError("this is no configuration of Vela's", why=" ".join(str(error).split())) from None
    return text


def _with_arms(config: str) -> str:
    """`config` and the sections of Arm's file that it does not hold itself."""
    own = set(re.findall(r"^\[([\w.]+)\]", config, re.M))
    arms = re.split(r"^(?=\[)", _vela_ini(), flags=re.M)
    return "\n".join([config, *(part for part in arms if part[1:].partition("]")[0] not in own)])


def _settings(options: VelaOptions) -> str:
    return _ini(
        {
            "compiler": {"enable_db": "true", "output_format": "Raw", "cop_format": "COP1"},
            "scheduler": {
                "optimize": options.optimize,
                "arena_size_limit": 2**32 if options.arena_limit is None else options.arena_limit,
                "separate_io_regions": str(options.separate_io).lower(),
                "cpu_tensor_alignment": 16,
                "tensor_allocator": "HillClimb",
            },
            "graph": {},
        }
    )


def _ini(sections: Mapping[str, Mapping[str, Any]]) -> str:
    return "".join(f"[{name}]\n" + "".join(f"{k}={v}\n" for k, v in s.items()) for name, s in sections.items())


@cache
def _vela_ini() -> str:
    return (files("ethosu") / "config_files" / "Arm" / "vela.ini").read_text()


def _region(compiled: Any, flatbuffer: bytes, target: Accelerator, options: VelaOptions) -> NpuRegion:
    graph = _TosaGraph(flatbuffer)
    fast, staging = compiled.scratch_fast, compiled.perf_report.stagingMemoryArea
    schedule = Schedule(compiled.opt_database, graph.op_names, staging if fast.region == 2 else "")
    return NpuRegion(
        accelerator=target.name,
        options=options,
        command_stream=bytes(compiled.command_stream),
        constants=bytes(compiled.read_only.data),
        scratch_bytes=compiled.scratch.size,
        fast_bytes=fast.size if fast.region == 2 else 0,
        inputs=_ports(compiled.inputs, graph.inputs),
        outputs=_ports(compiled.outputs, graph.outputs),
        cycles=compiled.perf_report.totalCycles,
        ops=schedule.ops(),
        tensors=schedule.tensors(),
        memory={name: used.peakUsage for name, used in compiled.perf_report.memories.items() if used.peakUsage},
    )


def _ports(tensors: Any, kinds: list[tuple[tuple[int, ...], str]]) -> tuple[NpuPort, ...]:
    if len(tensors) != len(kinds):
        raise RuntimeError(f"{len(kinds)} arguments or results became {len(tensors)}: one has no use")
    if any(not 0 <= tensor.address < 2**32 for tensor in tensors):
        raise RuntimeError("an argument or result was given no address")
    return tuple(
        NpuPort(tensor.region, tensor.address, tensor.size, shape, dtype)
        for tensor, (shape, dtype) in zip(tensors, kinds, strict=True)
    )


class _TosaGraph:
    """Ports and op names of a TOSA flatbuffer's main block; ports are (shape, numpy dtype)."""

    def __init__(self, flatbuffer: bytes) -> None:
        from tosa.DType import DType
        from tosa.Op import Op
        from tosa.TosaGraph import TosaGraph

        names = {value: name for name, value in vars(Op).items() if isinstance(value, int)}
        types = {value: name for name, value in vars(DType).items() if isinstance(value, int)}
        (region,) = _elements(TosaGraph.GetRootAs(flatbuffer, 0).Regions, 1)
        (block,) = _elements(region.Blocks, 1)
        tensors: dict[str | bytes | None, tuple[tuple[int, ...], str]] = {
            tensor.Name(): (tuple(_elements(tensor.Shape, tensor.ShapeLength())), _numpy_name(types[tensor.Type()]))
            for tensor in _elements(block.Tensors, block.TensorsLength())
        }
        self.op_names = [names[op.Op()] for op in _elements(block.Operators, block.OperatorsLength())]
        self.inputs = [tensors[name] for name in _elements(block.Inputs, block.InputsLength())]
        self.outputs = [tensors[name] for name in _elements(block.Outputs, block.OutputsLength())]


def _elements(element: Callable[[int], _T | None], length: int) -> list[_T]:
    """The elements of a flatbuffer's vector; its accessor answers None where the vector is missing."""
    return [found for index in range(length) if (found := element(index)) is not None]


def _numpy_name(tosa_type: str) -> str:
    wide = {"BOOL": "bool", "INT4": "int8", "INT48": "int64", "FP32": "float32", "FP16": "float16"}
    name = wide.get(tosa_type, tosa_type.lower())
    return np.dtype(name).name if name in wide.values() or name.startswith("int") else name


# Regor's names that are not TOSA's with other capitals.
_RENAMED = {
    "And": "BITWISE_AND", "Or": "BITWISE_OR", "Xor": "BITWISE_XOR", "Not": "BITWISE_NOT",
    "SHL": "LOGICAL_LEFT_SHIFT", "SHR": "LOGICAL_RIGHT_SHIFT", "Asr": "ARITHMETIC_RIGHT_SHIFT", "Div": "INTDIV",
    "AvgPool": "AVG_POOL2D", "MaxPool": "MAX_POOL2D", "ArgMax": "ARGMAX", "MatMul": "MATMUL",
}  # fmt: skip


def _tosa_name(regor_name: str) -> str:
    """TOSA's name of what Regor calls `Conv2D`, `DepthwiseConv2D`, `SHL`..."""
    return _RENAMED.get(regor_name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", regor_name).upper()
