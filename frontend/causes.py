"""Where the noise of an output is made: what each quantized tensor, alone, does to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch.fx import Node

from tosaic.frontend.bias_correction import Batch
from tosaic.frontend.exclusion import names_of
from tosaic.frontend.origin import Origin, origin
from tosaic.frontend.quantizer import Prepared
from tosaic.frontend.rounded_runs import RoundedRuns, source_of

Kind = Literal["activations", "weights"]


@dataclass(frozen=True)
class Cause:
    """A quantized tensor.

    Args:
        node: the node that gives it, by name; of weights, the one that reads them.
        name: what `--int16` and `--exclude` call that.
        alone_db: signal to noise of the worst output where this tensor alone is quantized; infinite where that does
            nothing.
    """

    node: str
    kind: Kind
    name: str
    origin: Origin
    alone_db: float


@dataclass
class Scan:
    """Tells the noise of a calibrated model's tensors apart.

    Args:
        prepared: its observers see nothing more.
        batches: of which a few are used, as by `RoundedRuns`.
    """

    prepared: Prepared
    batches: Sequence[Batch]
    _runs: RoundedRuns = field(init=False)

    def __post_init__(self) -> None:
        self._runs = RoundedRuns(self.prepared.module, self.batches)

    def causes(self) -> list[Cause]:
        """Every quantized tensor, the one that makes most noise first."""
        found = []
        for node in filter(self._runs.is_own, self._runs.observed):
            source = source_of(node)
            weights = source.op == "get_attr"
            owner = next(iter(node.users)) if weights else source
            name = names_of(owner)[-1] if owner.op == "call_function" else str(owner.target)
            kind: Kind = "weights" if weights else "activations"
            found.append(Cause(owner.name, kind, name, origin(owner), self._runs.db({node})))
        return sorted(found, key=lambda cause: cause.alone_db)

    def raised_db(self, causes: Iterable[Cause]) -> float:
        """Signal to noise of the worst output where all is quantized but these tensors, and those that they need."""
        causes = list(causes)
        wide = {name for one in causes if one.kind == "activations" for name in self.prepared.widened[one.node]}
        floats = {one.node for one in causes if one.kind == "weights"}

        def stays(node: Node) -> bool:
            source = source_of(node)
            return (
                floats.issuperset(user.name for user in node.users) if source.op == "get_attr" else source.name in wide
            )

        return self._runs.db({node for node in self._runs.observed if not stays(node)})
