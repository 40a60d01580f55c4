"""The phases before `place`, and the invariant that each leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tosaic.passes.fuse.fold_identities import FoldIdentities
from tosaic.passes.fuse.fuse_clamp import FuseClamp
from tosaic.passes.fuse.fuse_pad import FusePad
from tosaic.passes.fuse.fuse_tables import FuseTables
from tosaic.passes.layout.raise_transposes import RaiseTransposes
from tosaic.passes.layout.sink_transposes import SinkTransposes
from tosaic.passes.layout.transpose_into_weights import TransposeIntoWeights
from tosaic.passes.layout.transposes_to_reshapes import TransposesToReshapes
from tosaic.passes.module_pass import ModulePass, UpstreamPass, registered
from tosaic.passes.npu.reduce_rows import ReduceRows
from tosaic.passes.npu.rescale_to_table import RescaleToTable
from tosaic.passes.quantize.explicit_casts import ExplicitCasts
from tosaic.passes.quantize.fold_casts import FoldCasts
from tosaic.passes.quantize.quantize_boundary import QuantizeBoundary
from tosaic.passes.runner import Callback, run_passes
from tosaic.support.errors import PassError
from tosaic.support.functions import body_of, callee_of
from tosaic.support.mlir import TARGET_ENV, bytecode, functions, ir, parse, run_pipeline, walk


@dataclass(frozen=True)
class Phase:
    """Passes that together leave an invariant.

    Args:
        listed: in the order they run, before those that join it by naming the phase.
        check: raises PassError where the invariant does not hold.
        exact: whether every pass leaves the outputs equal to the bit.
    """

    name: str
    listed: tuple[ModulePass, ...]
    check: Callable[[ir.Module], None]
    exact: bool = False

    @property
    def passes(self) -> tuple[ModulePass, ...]:
        """In the order they run; those that join the phase are ordered by name."""
        return (*self.listed, *(cls() for cls in registered().values() if cls.phase == self.name))


def check_legal(module: ir.Module) -> None:
    """One `main`; only TOSA ops without control flow or state, quantizing casts, and calls of composites; static shapes
    of element types that some target computes.

    Raises:
        PassError: names the op and where it comes from.
    """
    known = functions(module)
    if "main" not in known:
        raise PassError("the module has no function `main`")
    for op in walk(module):
        if op.name == "func.call":
            callee = known[callee_of(op)]
            if "tosaic.composite" not in callee.attributes:
                raise PassError("a call of a function that is no composite is left", where=str(op.location))
        elif not op.name.startswith(_LEGAL):
            raise PassError(f"`{op.name}` is left after legalize", where=str(op.location), why="it is not of TOSA")
        elif op.name in _REFUSED:
            raise PassError(f"`{op.name}` cannot be compiled", where=str(op.location),
                            why="there is neither control flow nor state nor a Fourier transform on the target",
                            hint="write the model without it")  # fmt: skip
        for value in [*op.operands, *op.results]:
            _check_type(value.type, op)
    for argument in body_of(known["main"]).arguments:
        _check_type(argument.type, known["main"])


def _check_type(kind: ir.Type, op: ir.Operation) -> None:
    text = str(kind)
    if text.startswith("!tosa.shape"):
        return
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        raise PassError(f"`{op.name}` has the type `{text}`", where=str(op.location), why="its shape is not static",
                        hint="export the model for inputs of one size")  # fmt: skip
    element = str(kind.element_type)
    if element not in _ELEMENTS and not element.startswith("!quant.uniform"):
        raise PassError(f"`{op.name}` has the type `{text}`", where=str(op.location),
                        why=f"`{element}` is not among {', '.join(_ELEMENTS)}",
                        hint="cast it in the model: floats to float32, integers to int32")  # fmt: skip


def check_quantized(module: ir.Module) -> None:
    """No quantized type, and valid TOSA by MLIR's own validation for pro_int, pro_fp and int16.

    Raises:
        PassError: names the op, or carries the diagnostics of `tosa-validate`.
    """
    for op in walk(module):
        for value in [*op.operands, *op.results]:
            if "!quant." in str(value.type):
                raise PassError(f"`{op.name}` still has the type `{value.type}`", where=str(op.location))
    with module.context:
        copy = parse(bytecode(module))
        for function in functions(copy).values():
            for kind in ("arg_attrs", "res_attrs"):
                if kind in function.attributes:
                    del function.attributes[kind]
        copy.operation.attributes["tosa.target_env"] = ir.Attribute.parse(TARGET_ENV)
        run_pipeline(copy, "builtin.module(tosa-validate)")


_LEGAL = ("tosa.", "quant.qcast", "quant.dcast", "quant.scast", "func.func", "func.return")
_ELEMENTS = ("i1", "i4", "i8", "i16", "i32", "i48", "f32")
_REFUSED = ("tosa.cond_if", "tosa.while_loop", "tosa.yield", "tosa.variable", "tosa.variable_read",
            "tosa.variable_write", "tosa.custom", "tosa.fft2d", "tosa.rfft2d")  # fmt: skip
# MLIR's canonicalize folds dcast(qcast(x)) to x: it must not run while casts stand, nor as the inliner's clean-up.
_CLEAN = UpstreamPass("cse")
_INLINE = UpstreamPass("inline{default-pipeline=},symbol-dce")

PHASES: dict[str, Phase] = {
    phase.name: phase
    for phase in (
        Phase("legalize", (_CLEAN,), check_legal),
        Phase(
            "quantize",
            (FoldCasts(), _INLINE, _CLEAN, QuantizeBoundary(), ExplicitCasts(), _CLEAN),
            check_quantized,
        ),
        Phase(
            "layout",
            (SinkTransposes(), TransposeIntoWeights(), RaiseTransposes(), TransposesToReshapes(), _CLEAN),
            check_quantized,
            exact=True,
        ),
        Phase(
            "fuse",
            (FoldIdentities(), FusePad(), FuseClamp(), FuseTables(), FoldIdentities(), _CLEAN),
            check_quantized,
            exact=True,
        ),
        Phase("cpu", (FuseTables(powers_of_two=True), FoldIdentities(), _CLEAN), check_quantized, exact=True),
        Phase("npu", (RescaleToTable(), ReduceRows(), TransposesToReshapes(), _CLEAN), check_quantized, exact=True),
    )
}  # fmt: skip


def phases_of(npu: bool) -> list[str]:
    """The phases of a target with or without an NPU, in order."""
    return [name for name in PHASES if name != ("cpu" if npu else "npu")]


def run_phase(module: ir.Module, phase: str, callbacks: Sequence[Callback] = (), failures: Path | None = None) -> None:
    """Run one phase on `module` in place and check its invariant.

    Raises:
        PassError: a pass failed or the invariant does not hold.
    """
    chosen = PHASES[phase]
    run_passes(module, chosen.passes, callbacks, failures)
    try:
        chosen.check(module)
    except PassError as error:
        raise PassError(f"phase `{phase}` left an invalid module: {error.what}", where=error.where,
                        why=error.why, hint=error.hint) from None  # fmt: skip


def run_phases(
    module: ir.Module,
    phases: Iterable[str] | None = None,
    callbacks: Sequence[Callback] = (),
    failures: Path | None = None,
) -> None:
    """Run `phases`, those of a target without an NPU by default, in the order given, checking each invariant.

    `place` needs a target: see `tosaic.passes.place`.
    """
    for phase in phases_of(npu=False) if phases is None else phases:
        run_phase(module, phase, callbacks, failures)
