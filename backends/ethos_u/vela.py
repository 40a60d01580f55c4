"""Compile a TOSA flatbuffer for an Ethos-U with Vela's Regor, called in process and kept in a forked child."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from tosaic.backends.ethos_u.accelerators import EthosU, find_accelerator
from tosaic.backends.ethos_u.emulator.stream import command_words
from tosaic.backends.ethos_u.schedule import RegionSchedule
from tosaic.backends.npu import USUAL, NpuOptions, NpuPort, NpuRefusal, NpuRegion
from tosaic.backends.reference.graph import FlatbufferGraph
from tosaic.support.child import in_child
from tosaic.support.errors import BackendError, unknown_name

_T = TypeVar("_T")


class VelaRefusal(NpuRefusal):
    """Vela did not take the region."""

    def __init__(self, message: str, accelerator: str) -> None:
        found = re.search(r"operation \((\w+)\)", message) or re.search(r"Validation error:\s*(\w+):", message)
        self.op = _tosa_name(found[1]) if found else ""
        super().__init__(
            f"Vela refused {self.op or 'the region'} for {accelerator}",
            why=" ".join(message.removeprefix("Compilation failed:").split()),
            hint="leave that op to the CPU",
        )


def compile_region(flatbuffer: bytes, accelerator: str, options: NpuOptions = USUAL) -> NpuRegion:
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


def _compile(flatbuffer: bytes, target: EthosU, system: str, options: NpuOptions) -> NpuRegion:
    from ethosu import regor

    compiled = regor.compile(target.architecture, flatbuffer, "TOSA", system, options=_settings(options))
    return _region(compiled, flatbuffer, target, options)


def _system(target: EthosU, options: NpuOptions) -> str:
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


def _with_arms(config: str) -> str:
    """`config` and the sections of Arm's file that it does not hold itself."""
    own = set(re.findall(r"^\[([\w.]+)\]", config, re.M))
    arms = re.split(r"^(?=\[)", _vela_ini(), flags=re.M)
    return "\n".join([config, *(part for part in arms if part[1:].partition("]")[0] not in own)])


def _settings(options: NpuOptions) -> str:
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


def _region(compiled: Any, flatbuffer: bytes, target: EthosU, options: NpuOptions) -> NpuRegion:
    graph = FlatbufferGraph(flatbuffer)
    fast, staging = compiled.scratch_fast, compiled.perf_report.stagingMemoryArea
    schedule = RegionSchedule(compiled.opt_database, graph.op_names, staging if fast.region == 2 else "")
    stream = bytes(compiled.command_stream)
    return NpuRegion(
        accelerator=target.name,
        options=options,
        command_stream=stream,
        constants=bytes(compiled.read_only.data),
        scratch_bytes=compiled.scratch.size,
        fast_bytes=fast.size if fast.region == 2 else 0,
        inputs=_ports(compiled.inputs, graph.inputs),
        outputs=_ports(compiled.outputs, graph.outputs),
        cycles=compiled.perf_report.totalCycles,
        ops=schedule.ops(),
        tensors=schedule.tensors(),
        memory={name: used.peakUsage for name, used in compiled.perf_report.memories.items() if used.peakUsage},
        header_bytes=len(stream) - command_words(stream).nbytes,
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


# Regor's names that are not TOSA's with other capitals.
_RENAMED = {
    "And": "BITWISE_AND", "Or": "BITWISE_OR", "Xor": "BITWISE_XOR", "Not": "BITWISE_NOT",
    "SHL": "LOGICAL_LEFT_SHIFT", "SHR": "LOGICAL_RIGHT_SHIFT", "Asr": "ARITHMETIC_RIGHT_SHIFT", "Div": "INTDIV",
    "AvgPool": "AVG_POOL2D", "MaxPool": "MAX_POOL2D", "ArgMax": "ARGMAX", "MatMul": "MATMUL",
}  # fmt: skip


def _tosa_name(regor_name: str) -> str:
    """TOSA's name of what Regor calls `Conv2D`, `DepthwiseConv2D`, `SHL`..."""
    return _RENAMED.get(regor_name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", regor_name).upper()
