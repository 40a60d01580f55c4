"""The phases: their passes in order, and the invariant that each leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tosaic.passes.fuse.fold_identities import FoldIdentities
from tosaic.passes.fuse.fuse_clamp import FuseClamp
from tosaic.passes.fuse.fuse_pad import FusePad
from tosaic.passes.fuse.fuse_tables import FuseTables
from tosaic.passes.fuse.known_parts import KnownParts
from tosaic.passes.fuse.round_twice import RoundTwice
from tosaic.passes.fuse.selects_to_scatters import SelectsToScatters
from tosaic.passes.invariants import (
    check_for_npu,
    check_fused,
    check_layout,
    check_legal,
    check_placed,
    check_quantized,
)
from tosaic.passes.layout.raise_transposes import RaiseTransposes
from tosaic.passes.layout.sink_through_reshapes import SinkThroughReshapes
from tosaic.passes.layout.sink_transposes import SinkTransposes
from tosaic.passes.layout.transpose_into_weights import TransposeIntoWeights
from tosaic.passes.layout.transposes_to_reshapes import TransposesToReshapes
from tosaic.passes.module_pass import PASSES, ModulePass, UpstreamPass
from tosaic.passes.npu.affine_to_depthwise import AffineToDepthwise
from tosaic.passes.npu.centering_to_convolutions import CenteringToConvolutions
from tosaic.passes.npu.cheapest_convolutions import CheapestConvolutions
from tosaic.passes.npu.cheapest_layers import CheapestLayers
from tosaic.passes.npu.cheapest_moves import CheapestMoves
from tosaic.passes.npu.cheapest_products import CheapestProducts
from tosaic.passes.npu.cheapest_reductions import CheapestReductions
from tosaic.passes.npu.cheapest_transpose_convolutions import CheapestTransposeConvolutions
from tosaic.passes.npu.cheapest_transposes import CheapestTransposes
from tosaic.passes.npu.columns_to_channels import ColumnsToChannels
from tosaic.passes.npu.four_dimensions import FourDimensions
from tosaic.passes.npu.one_batch import OneBatch
from tosaic.passes.npu.pixels_to_channels import PixelsToChannels
from tosaic.passes.npu.pixels_to_rows import PixelsToRows
from tosaic.passes.npu.reduce_rows import ReduceRows
from tosaic.passes.npu.rescale_to_table import RescaleToTable
from tosaic.passes.npu.sums_to_convolutions import SumsToConvolutions
from tosaic.passes.place.place import Place
from tosaic.passes.quantize.explicit_casts import ExplicitCasts
from tosaic.passes.quantize.fold_casts import FoldCasts
from tosaic.passes.quantize.quantize_boundary import QuantizeBoundary
from tosaic.passes.runner import Callback, run_passes
from tosaic.support.errors import PassError
from tosaic.support.mlir import copy_of, ir


@dataclass(frozen=True)
class Phase:
    """Passes that together leave an invariant.

    Args:
        listed: in the order they run, before those that join the phase by naming it.
        closing: run last, in this order.
        check: raises PassError where the invariant does not hold; it may spoil the module that it is given.
        exact: whether every pass leaves the outputs equal to the bit.
    """

    name: str
    listed: tuple[ModulePass, ...]
    closing: tuple[ModulePass, ...]
    check: Callable[[ir.Module], None]
    exact: bool = False

    @property
    def passes(self) -> tuple[ModulePass, ...]:
        """In the order they run; those that join the phase are ordered by name."""
        joining = (cls() for cls in PASSES.known().values() if cls.phase == self.name)
        return (*self.listed, *joining, *self.closing)


# MLIR's canonicalize folds dcast(qcast(x)) to x: it must not run while casts stand, nor as the inliner's clean-up.
_CLEAN = UpstreamPass("cse")
_INLINE = UpstreamPass("inline{default-pipeline=},symbol-dce")


def npu_phases(target: str, small: bool = False) -> tuple[Phase, ...]:
    """The alternatives of the phase `npu` for a target or an accelerator, of which its costs choose: as it is; in four
    dimensions, with sums, transposes and convolutions in their cheapest form; the same with pixels in rows; with
    transposes sunk through reshapes before. Where they shall be `small`, nothing takes another form that needs more
    memory for fewer cycles."""
    sinking = (SinkThroughReshapes(), RaiseTransposes(), TransposesToReshapes())
    cheapest = (
        *(() if small else (SumsToConvolutions(target),)),
        CheapestProducts(target),
        CheapestTransposeConvolutions(target),
        CheapestLayers(target),
        CheapestConvolutions(target),
        ColumnsToChannels(target),
        CenteringToConvolutions(target),
        CheapestReductions(target),
        AffineToDepthwise(target),
        PixelsToChannels(target),
        CheapestMoves(target),
        CheapestTransposes(target),
    )
    images = FourDimensions()
    return (
        _npu_phase(),
        _npu_phase((images,), cheapest),
        _npu_phase((images,), (PixelsToRows(target), *cheapest)),
        _npu_phase((*sinking, images), cheapest),
    )


def _npu_phase(first: tuple[ModulePass, ...] = (), then: tuple[ModulePass, ...] = ()) -> Phase:
    tables = RescaleToTable()  # once more at the end: dimensions of one that vanish bring a RESCALE to what it reads
    closing = (OneBatch(), *first, tables, ReduceRows(), *then, TransposesToReshapes(), tables, _CLEAN)
    return Phase("npu", (), closing, check_for_npu, exact=True)


def place_phase(target: str = "") -> Phase:
    """The phase `place` for a target or an accelerator; for none, everything is placed on the CPU."""
    return Phase("place", (Place(target),), (), check_placed, exact=True)


PHASES: dict[str, Phase] = {
    phase.name: phase
    for phase in (
        Phase("legalize", (), (_CLEAN,), check_legal),
        Phase(
            "quantize",
            (FoldCasts(), _INLINE, _CLEAN, QuantizeBoundary(), ExplicitCasts()),
            (_CLEAN,),
            check_quantized,
        ),
        Phase(
            "layout",
            (SinkTransposes(), TransposeIntoWeights(), RaiseTransposes()),
            (TransposesToReshapes(), _CLEAN),
            check_layout,
            exact=True,
        ),
        Phase(
            "fuse",
            (FoldIdentities(), KnownParts(), FusePad(), FuseClamp(), FuseTables(), SelectsToScatters()),
            (FoldIdentities(), _CLEAN),
            check_fused,
            exact=True,
        ),
        Phase(
            "cpu", (RoundTwice(), FuseTables(powers_of_two=True)), (FoldIdentities(), _CLEAN), check_fused, exact=True
        ),
        _npu_phase(),
        place_phase(),
    )
}


def phases_of(npu: bool) -> list[str]:
    """The phases before `place` of a target with or without an NPU, in order."""
    return [name for name in PHASES if name not in ("place", "cpu" if npu else "npu")]


def run_phase(
    module: ir.Module, phase: str | Phase, callbacks: Sequence[Callback] = (), failures: Path | None = None
) -> None:
    """Run one phase on `module` in place and check its invariant.

    Raises:
        PassError: a pass failed or the invariant does not hold.
    """
    chosen = PHASES[phase] if isinstance(phase, str) else phase
    run_passes(module, chosen.passes, callbacks, failures)
    try:
        chosen.check(copy_of(module))
    except PassError as error:
        raise PassError(f"phase `{chosen.name}` left an invalid module: {error.what}", where=error.where,
                        why=error.why, hint=error.hint) from None  # fmt: skip


def run_phases(
    module: ir.Module,
    phases: Iterable[str] | None = None,
    callbacks: Sequence[Callback] = (),
    failures: Path | None = None,
) -> None:
    """Run `phases` in the order given, checking each invariant; by default those before `place` of a target without an
    NPU.
    """
    for phase in phases_of(npu=False) if phases is None else phases:
        run_phase(module, phase, callbacks, failures)
