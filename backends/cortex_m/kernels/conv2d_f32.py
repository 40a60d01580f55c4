"""CONV2D (and with it fully connected layers) and MATMUL of floats on MVE-F."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload, weights_at
from tosaic.backends.cortex_m.kernels.mve import round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import (
    F32,
    Geometry,
    dtype_of,
    is_chain,
    match_bounds,
    match_f32,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.nest.floats import PRELUDE_F32
from tosaic.backends.cortex_m.nest.outer import OuterKernel, OuterProduct, scheduled, sketch
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.functions import body_of, computing_ops
from tosaic.support.mlir import ir, shape_of
from tosaic.support.values import is_argument
from tosaic.tuner.space import Schedule, Variant


class _Products(KernelFamily):
    """What is a sum of products of floats, with an optional CLAMP: its one variant is the sketch of `nest.outer`."""

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return (sketch(_product(workload), self.site, core.pipeline),) if "mve.fp" in core.isa else ()

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_product(workload), schedule, core.pipeline).nest.trace

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return scheduled(_product(workload), schedule, core.pipeline).counts()


@FAMILIES.register
class Conv2dF32(_Products):
    """CONV2D, f32 times constant f32, optional CLAMP."""

    name = "conv2d_f32"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        found = match_f32(ops, function) if ops and ops[0].name == "tosa.conv2d" else None
        if found is None:
            return None
        geometry, weights, bias, bounds = found
        clamped = bool(np.isfinite(bounds).any())
        attributes = {**vars(geometry.flattened), "out_channels": len(weights), "clamped": clamped}
        constants = {"weights": weights, "bias": np.broadcast_to(bias, (len(weights),)), "bounds": bounds}
        return workload(self.name, attributes, constants)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        kernel, constants, params = scheduled(_product(workload), schedule, core.pipeline), workload.constants, Params()
        params.add(constants["bounds"])
        bias = params.add(kernel.pack_bias(constants["bias"]))
        weights = params.add(kernel.pack_weights(constants["weights"].reshape(kernel.what.channels, -1)))
        lines = [
            *kernel.functions(),
            "void @SYMBOL@(const float *restrict in, float *restrict out, const int8_t *restrict params,",
            "              int8_t *restrict scratch)",
            "{",
            "  const float *range = (const float *)params;",
            weights_at(weights),
            *(f"  {line}" for line in kernel.body("(const float *)packed", f"(const float *)(params + {bias})")),
            "}",
            "",
        ]
        symbol, text = with_symbol(self.name, PRELUDE_F32 + "\n".join(lines))
        return KernelSource(symbol, "c", text, bytes(params), kernel.scratch_bytes, weights=weights)


@FAMILIES.register
class MatmulF32(_Products):
    """MATMUL of two f32 arguments, optional CLAMP: the second is packed in scratch memory."""

    name = "matmul_f32"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.matmul" or not is_chain(ops, function):
            return None
        a, b = list(ops[0].operands)[:2]
        bounds = match_bounds(ops[1:])
        if [a, b] != list(body_of(function).arguments) or not is_argument(b) or bounds is None:
            return None
        if (dtype_of(a), dtype_of(b)) != (F32, F32):
            return None
        (batch, rows, depth), columns, one = shape_of(a), shape_of(b)[2], (1, 1)
        geometry = Geometry(1, 1, rows, depth, one, one, (0, 0, 0, 0), one, 1, rows)
        clamped = bool(np.isfinite(bounds).any())
        attributes = {"batch_count": batch, **vars(geometry), "out_channels": columns, "clamped": clamped}
        return workload(self.name, attributes, {"bounds": bounds})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return (sketch(_product(workload), self.site.inside, core.pipeline),) if "mve.fp" in core.isa else ()

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        kernel, batch = scheduled(_product(workload), schedule, core.pipeline), number(workload, "batch_count")
        counts = {name: batch * value for name, value in kernel.counts().items()}
        return {**counts, "scratch": float(kernel.scratch_bytes + _room(kernel))}

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        kernel, params = scheduled(_product(workload), schedule, core.pipeline), Params()
        what, weights = kernel.what, kernel.scratch_bytes
        rows, depth, columns, width = what.geometry.columns, what.depth, what.channels, 4 * kernel.tile[1]
        params.add(workload.constants["bounds"])
        bias = params.add(kernel.pack_bias(np.zeros(columns, np.float32)))
        body = kernel.body("packed", f"(const float *)(params + {bias})")
        lines = [
            *kernel.functions(),
            "INLINE void pack(float *to, const float *b)",
            "{",
            f"  for (int n = 0; n < {columns}; n += {width})",
            f"    for (int k = 0; k < {depth}; k++)",
            f"      for (int c = n; c < n + {width}; c += 4, to += 4)",
            f"        vstrwq_f32(to, vldrwq_z_f32(b + k * {columns} + c, vctp32q(c < {columns} ? {columns} - c : 0)));",
            "}",
            "void @SYMBOL@(const float *restrict a, const float *restrict b, float *restrict results,",
            "              const int8_t *restrict params, int8_t *restrict scratch)",
            "{",
            "  const float *range = (const float *)params;",
            f"  float *packed = (float *)(scratch + {weights});",
            f"  for (int i = 0; i < {number(workload, 'batch_count')}; i++) {{",
            f"    const float *in = a + i * {rows * depth};",
            f"    float *out = results + i * {rows * columns};",
            f"    pack(packed, b + i * {depth * columns});",
            *(f"    {line}" for line in body),
            "  }",
            "}",
            "",
        ]
        symbol, text = with_symbol(self.name, PRELUDE_F32 + "\n".join(lines))
        return KernelSource(symbol, "c", text, bytes(params), weights + _room(kernel))


def _room(kernel: OuterKernel) -> int:
    """Bytes of the packed second operand of a MATMUL."""
    return round_up(kernel.weight_bytes, 16)


def _product(workload: Workload) -> OuterProduct:
    clamped = bool(workload.attributes["clamped"])
    return OuterProduct(Geometry.of(workload.attributes), number(workload, "out_channels"), clamped)
