"""CMSIS-NN's int8 kernels as choices of the schedule space: where the library is, how it is built, how it is called.

The library comes from the checkout named by the environment variable `TOSAIC_CMSIS_NN`, else from the subset that the
package `bakenn` carries. It is built with `CMSIS_NN_USE_SINGLE_ROUNDING`, under which it rounds as TOSA's SINGLE_ROUND.
A function that the library lacks is not offered; `CmsisNn.missing` says which.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource, Workload
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.kernels.depthwise import Depthwise
from tosaic.backends.cortex_m.kernels.emit import Params
from tosaic.backends.cortex_m.kernels.mve import named, round_up
from tosaic.backends.cortex_m.kernels.mve_match import (
    INT8,
    Geometry,
    constants_after_first,
    dtype_of,
    fold_zero_point,
    is_chain,
    number,
    workload,
)
from tosaic.backends.cortex_m.toolchain import clang, newlib_headers, target_flags
from tosaic.backends.target import Core
from tosaic.support.attributes import ints_of
from tosaic.support.cache import cached
from tosaic.support.errors import BackendError
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir, shape_of
from tosaic.support.values import is_argument
from tosaic.tuner.space import Schedule, Variant

LIBRARY = "cmsis-nn"
"""Its name in `KernelSource.libraries`."""
VARIABLE = "TOSAIC_CMSIS_NN"
"""The environment variable that names a checkout."""

CONVOLVE = "arm_convolve_wrapper_s8"
DEPTHWISE = "arm_depthwise_conv_wrapper_s8"
FULLY_CONNECTED = "arm_fully_connected_s8"
FULLY_CONNECTED_PER_CHANNEL = "arm_fully_connected_per_channel_s8"
MAX_POOL = "arm_max_pool_s8"
AVERAGE_POOL = "arm_avgpool_s8"
FUNCTIONS = (CONVOLVE, DEPTHWISE, FULLY_CONNECTED, FULLY_CONNECTED_PER_CHANNEL, MAX_POOL, AVERAGE_POOL)

_FLAGS = ("-O3", "-ffunction-sections", "-fdata-sections", "-ffreestanding", "-DCMSIS_NN_USE_SINGLE_ROUNDING", "-w")
# Of the block that MVE depthwise kernels copy windows of: CH_IN_BLOCK_MVE in arm_nnsupportfunctions.h.
_DEPTHWISE_BLOCK = 124
_DEFINITION = re.compile(r"^(?![#/*\s])[^;]*?\b(arm_\w+)\([^;]*$", re.MULTILINE)


@dataclass(frozen=True)
class CmsisNn:
    """A copy of CMSIS-NN: `root` holds its folders `Include` and `Source`."""

    root: Path

    @staticmethod
    def find(checkout: Path | None = None) -> CmsisNn | None:
        """The library at `checkout`, else where TOSAIC_CMSIS_NN says, else in `bakenn`; None without any.

        Raises:
            BackendError: the named folder holds no CMSIS-NN.
        """
        named_by_user = checkout or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
        if named_by_user is None:
            spec = importlib.util.find_spec("bakenn")
            if spec is None or not spec.submodule_search_locations:
                return None
            root = Path(spec.submodule_search_locations[0], "backend", "cmsis_nn", "vendor", "cmsis_nn")
            return CmsisNn(root) if root.is_dir() else None
        if not (named_by_user / "Include" / "arm_nnfunctions.h").is_file():
            raise BackendError(
                f"there is no CMSIS-NN in {named_by_user}",
                why="it has no Include/arm_nnfunctions.h",
                hint=f"point {VARIABLE} at a checkout of github.com/ARM-software/CMSIS-NN, or unset it",
            )
        return CmsisNn(named_by_user.resolve())

    @property
    def include(self) -> list[Path]:
        """Header folders, for callers too. Older versions need CMSIS-Core, which lies beside the registry's copy."""
        core = self.root.parent / "cmsis_core" / "Include"
        return [self.root / "Include", *([core] if core.is_dir() else [])]

    @property
    def missing(self) -> list[str]:
        """The functions that would be offered and are not there."""
        return [function for function in FUNCTIONS if not self.has(function)]

    def has(self, function: str) -> bool:
        return function in self._definitions

    def archive(self, core: Core) -> Path:
        """The static library of all that is offered, built on first use.

        Raises:
            BackendError: clang refused a file.
        """
        sources = self._closure()
        headers = sorted(header for folder in self.include for header in folder.rglob("*.h"))
        flags = [*target_flags(core), *_FLAGS]
        material: list[str | bytes] = [*flags, *(path.read_bytes() for path in [*sources, *headers])]
        return cached("libcmsis-nn.a", material, lambda target: self._build(sources, flags, target))

    @cached_property
    def _texts(self) -> dict[Path, str]:
        return {path: path.read_text(errors="replace") for path in sorted(self.root.glob("Source/*/*.c"))}

    @cached_property
    def _definitions(self) -> dict[str, Path]:
        """The file that defines each function."""
        return {name: path for path, text in self._texts.items() for name in _DEFINITION.findall(text)}

    def _closure(self) -> list[Path]:
        """The files that define the offered functions and all that they call."""
        found: set[Path] = set()
        open_names = [function for function in FUNCTIONS if self.has(function)]
        while open_names:
            path = self._definitions.get(open_names.pop())
            if path is not None and path not in found:
                found.add(path)
                open_names += set(re.findall(r"\barm_\w+", self._texts[path]))
        return sorted(found)

    def _build(self, sources: Sequence[Path], flags: Sequence[str], target: Path) -> None:
        include = [f"-I{folder}" for folder in self.include]

        def compile_one(source: Path) -> Path:
            made = target.parent / f"{source.stem}.o"
            command = [clang(), *flags, *include, "-isystem", newlib_headers(), "-c", source, "-o", made]
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
            if done.returncode:
                raise BackendError(f"CMSIS-NN's {source.name} does not compile", why=done.stderr.strip()[:2000])
            return made

        with ThreadPoolExecutor(max_workers=2) as pool:
            objects = list(pool.map(compile_one, sources))
        archiver = shutil.which("llvm-ar-22") or shutil.which("arm-none-eabi-ar")
        if archiver is None:
            raise BackendError("neither llvm-ar-22 nor arm-none-eabi-ar is installed", hint="run `make setup`")
        done = subprocess.run([archiver, "rcs", str(target), *map(str, objects)], capture_output=True, text=True)
        for made in objects:
            made.unlink()
        if done.returncode:
            raise BackendError("CMSIS-NN's objects do not make a library", why=done.stderr.strip()[:2000])


@lru_cache(maxsize=8)
def _find(variable: str) -> CmsisNn | None:
    return CmsisNn.find(Path(variable) if variable else None)


@dataclass(frozen=True)
class CmsisNnKernels:
    """The kernel family of CMSIS-NN: a variant per library function that covers the workload.

    Args:
        library: the copy to use; found by `CmsisNn.find` where None.
    """

    library: CmsisNn | None = None
    name = "cmsis_nn"

    def find(self) -> CmsisNn | None:
        """The copy in use, None where there is none.

        Raises:
            BackendError: the environment names a folder without CMSIS-NN.
        """
        return self.library or _find(os.environ.get(VARIABLE, ""))

    def match(self, function: ir.Operation) -> Workload | None:
        found = Conv2d().match(function) or Depthwise().match(function)
        if found is None:
            return _match_pool(function)
        return workload(found.kind, {**found.attributes, "uniform": _is_uniform(found)}, found.constants)

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        library = self.find()
        # Buffer sizes are those of the MVE code.
        if library is None or not core.mve or workload.attributes.get("table"):
            return ()
        return tuple(Variant(function) for function in _candidates(workload) if library.has(function))

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        function = schedule.variant
        glue, params, scratch = _GENERATORS[function](workload, function)
        symbol, text = named("cmsis_nn", glue)
        return KernelSource(symbol, "c", text, params, scratch, libraries=(LIBRARY,))

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return {function: float(function == schedule.variant) for function in FUNCTIONS}


def _is_uniform(found: Workload) -> bool:
    """Whether all channels share one scale."""
    return all(len(set(found.constants[name].tolist())) == 1 for name in ("multiplier", "shift"))


def _match_pool(function: ir.Operation) -> Workload | None:
    ops = computing_ops(function)
    if len(ops) != 1 or ops[0].name not in ("tosa.max_pool2d", "tosa.avg_pool2d") or not is_chain(ops, function):
        return None
    (op,) = ops
    zeros = constants_after_first(op)
    if not is_argument(op.operands[0]) or dtype_of(op.operands[0]) != INT8 or zeros is None:
        return None
    kernel, stride, pad = (ints_of(op, name) for name in ("kernel", "stride", "pad"))
    batch, height, width, channels = shape_of(op.operands[0])
    _, rows, columns, _ = shape_of(op.results[0])
    if op.name == "tosa.avg_pool2d" and not _averages_agree(kernel, pad, zeros):
        return None
    geometry = Geometry(batch, height, width, channels, kernel, stride, pad, (1, 1), rows, columns)  # type: ignore[arg-type]
    return workload(op.name.removeprefix("tosa."), vars(geometry), {})


def _averages_agree(kernel: tuple[int, ...], pad: tuple[int, ...], zeros: Sequence[np.ndarray]) -> bool:
    """Whether CMSIS-NN's average, which rounds half away from zero, can meet no tie, and needs no zero point."""
    return kernel[0] * kernel[1] % 2 == 1 and not any(pad) and zeros[0].item() == zeros[1].item()


def _candidates(workload: Workload) -> Iterator[str]:
    if workload.kind == "max_pool2d":
        yield MAX_POOL
    elif workload.kind == "avg_pool2d":
        yield AVERAGE_POOL
    elif workload.kind == "depthwise_conv2d":
        yield DEPTHWISE
    else:
        geometry = Geometry.of(workload.attributes)
        if geometry.dense and (geometry.rows, geometry.columns) == (1, 1):
            yield FULLY_CONNECTED_PER_CHANNEL
            if workload.attributes["uniform"]:
                yield FULLY_CONNECTED
        yield CONVOLVE


_HEAD = """\
#include "arm_nnfunctions.h"
void @SYMBOL@(const int8_t *in, int8_t *out, const int8_t *params, void *scratch)
{
"""


def _dims(name: str, n: int, h: int, w: int, c: int) -> str:
    return f"  const cmsis_nn_dims {name} = {{.n = {n}, .h = {h}, .w = {w}, .c = {c}}};"


def _tile(pair: tuple[int, ...]) -> str:
    """A cmsis_nn_tile of (height, width)."""
    return f"{{.w = {pair[1]}, .h = {pair[0]}}}"


class _Layer:
    """The params of a weighted layer: {zero point, low, high, input's zero point}, then what CMSIS-NN wants."""

    def __init__(self, workload: Workload, weights: np.ndarray, bias: np.ndarray) -> None:
        constants = workload.constants
        self.blob = Params()
        self.blob.add(np.append(constants["range"], constants["input_zero_point"]).astype(np.int32))
        self.weights = self.blob.add(weights)
        self.bias = self.blob.add(bias.astype(np.int32))
        self.multiplier = self.blob.add(constants["multiplier"].astype(np.int32))
        # CMSIS-NN multiplies by multiplier * 2^(shift - 31).
        self.shift = self.blob.add(31 - constants["shift"].astype(np.int32))

    @property
    def lines(self) -> list[str]:
        return [
            "  const int32_t *range = (const int32_t *)params;",
            f"  const cmsis_nn_per_channel_quant_params scale = {{(int32_t *)(params + {self.multiplier}), "
            f"(int32_t *)(params + {self.shift})}};",
            f"  const int32_t *bias = (const int32_t *)(params + {self.bias});",
            f"  const int8_t *weights = params + {self.weights};",
        ]


_RANGE = ".input_offset = -range[3], .output_offset = range[0], .activation = {range[1], range[2]}"
_ARGUMENTS = "&input, in, &filter, weights, &one_per_channel, bias, &output, out"


def _window_lines(geometry: Geometry, channels: int) -> list[str]:
    return [
        _dims("input", geometry.batch, geometry.height, geometry.width, geometry.channels),
        _dims("output", geometry.batch, geometry.rows, geometry.columns, channels),
        _dims("one_per_channel", 1, 1, 1, channels),
    ]


def _window_params(geometry: Geometry) -> str:
    stride, pad, dilation = map(_tile, (geometry.stride, geometry.pad[::2], geometry.dilation))
    return f".stride = {stride}, .padding = {pad}, .dilation = {dilation}"


def _convolve(workload: Workload, function: str) -> tuple[str, bytes, int]:
    geometry, channels = Geometry.of(workload.attributes), number(workload, "out_channels")
    layer = _Layer(workload, workload.constants["weights"], workload.constants["bias"])
    scratch = 4 * round_up(geometry.depth, 16)
    lines = [
        *layer.lines,
        *_window_lines(geometry, channels),
        _dims("filter", channels, *geometry.kernel, geometry.channels),
        f"  const cmsis_nn_context context = {{scratch, {scratch}}};",
        f"  const cmsis_nn_conv_params how = {{{_RANGE}, {_window_params(geometry)}}};",
        f"  {function}(&context, &how, &scale, {_ARGUMENTS});",
    ]
    return _HEAD + "\n".join([*lines, "}", ""]), bytes(layer.blob), scratch


def _depthwise(workload: Workload, function: str) -> tuple[str, bytes, int]:
    geometry, multiples = Geometry.of(workload.attributes), number(workload, "multiples")
    channels, window = geometry.channels * multiples, geometry.kernel[0] * geometry.kernel[1]
    layer = _Layer(workload, workload.constants["weights"].transpose(1, 2, 0), workload.constants["bias"])
    scratch = 4 * window * max(geometry.channels, _DEPTHWISE_BLOCK) + window * channels + 4 * round_up(window, 16)
    lines = [
        *layer.lines,
        *_window_lines(geometry, channels),
        _dims("filter", 1, *geometry.kernel, channels),
        f"  const cmsis_nn_context context = {{scratch, {scratch}}};",
        f"  const cmsis_nn_dw_conv_params how = {{{_RANGE}, .ch_mult = {multiples}, {_window_params(geometry)}}};",
        f"  {function}(&context, &how, &scale, {_ARGUMENTS});",
    ]
    return _HEAD + "\n".join([*lines, "}", ""]), bytes(layer.blob), scratch


def _fully_connected(workload: Workload, function: str) -> tuple[str, bytes, int]:
    """The context is the bias with the input's zero point folded in, which `arm_vector_sum_s8` would compute."""
    geometry, channels = Geometry.of(workload.attributes), number(workload, "out_channels")
    weights, bias = workload.constants["weights"], workload.constants["bias"]
    layer = _Layer(workload, weights, bias)
    sums = layer.blob.add(fold_zero_point(bias, weights, int(workload.constants["input_zero_point"].item())))
    per_tensor = "{scale.multiplier[0], scale.shift[0]}"
    lines = [
        *layer.lines,
        _dims("input", geometry.batch, 1, 1, geometry.depth),
        _dims("filter", geometry.depth, 1, 1, channels),
        _dims("output", geometry.batch, 1, 1, channels),
        _dims("one_per_channel", 1, 1, 1, channels),
        f"  const cmsis_nn_context context = {{(void *)(params + {sums}), {4 * channels}}};",
        f"  const cmsis_nn_fc_params how = {{{_RANGE}}};",
        f"  const cmsis_nn_per_tensor_quant_params one = {per_tensor};",
        f"  {function}(&context, &how, {'&one' if function == FULLY_CONNECTED else '&scale'}, {_ARGUMENTS});",
    ]
    return _HEAD + "\n".join([*lines, "}", ""]), bytes(layer.blob), 0


def _pool(workload: Workload, function: str) -> tuple[str, bytes, int]:
    geometry = Geometry.of(workload.attributes)
    scratch = 4 * geometry.channels
    image_in = geometry.height * geometry.width * geometry.channels
    image_out = geometry.rows * geometry.columns * geometry.channels
    single = replace(geometry, batch=1)  # Version 4.0.0 knows no batches here.
    lines = [
        *_window_lines(single, geometry.channels),
        _dims("filter", 1, *geometry.kernel, 1),
        f"  const cmsis_nn_context context = {{scratch, {scratch}}};",
        f"  const cmsis_nn_pool_params how = {{.stride = {_tile(geometry.stride)}, "
        f".padding = {_tile(geometry.pad[::2])}, .activation = {{-128, 127}}}};",
        f"  for (int image = 0; image < {geometry.batch}; image++)",
        f"    {function}(&context, &how, &input, in + image * {image_in}, &filter,",
        f"      &output, out + image * {image_out});",
    ]
    return _HEAD + "\n".join([*lines, "}", ""]), b"", scratch


_GENERATORS = {
    CONVOLVE: _convolve,
    DEPTHWISE: _depthwise,
    FULLY_CONNECTED: _fully_connected,
    FULLY_CONNECTED_PER_CHANNEL: _fully_connected,
    MAX_POOL: _pool,
    AVERAGE_POOL: _pool,
}
