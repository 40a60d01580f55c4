"""Runs calibration data through the observers; what fails says at which op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from tosaic.frontend.formats import ANNOTATION
from tosaic.frontend.lowerings.op_quantization import OneToOne, Recurrent
from tosaic.frontend.lowerings.registry import op_quantization
from tosaic.frontend.observer import FOLDS, RangeObserver
from tosaic.frontend.origin import failure, origin
from tosaic.support.errors import Advice, ModelError

_LEAST_FOLDED = 2 * FOLDS  # samples
_MUCH_LOST_DB = 6.0
_NAMED = 3


def calibrate(prepared: GraphModule, batches: Sequence[tuple[Tensor, ...]]) -> tuple[Advice, ...]:
    """Let the observers of a prepared graph see all batches, in order; what a user should know of them.

    Each quarter of the samples is held back once. So it is seen what data cost that the ranges of the others do not
    know, and how much headroom they ask for.

    Raises:
        ModelError: an op fails on a batch, or its result holds NaN or infinity; the message names op and line.
    """
    run = _Calibration(prepared)
    observers = {
        node.all_input_nodes[0]: observer
        for node in prepared.graph.nodes
        if node.op == "call_module" and isinstance(observer := getattr(prepared, str(node.target), None), RangeObserver)
    }
    for number, batch in enumerate(batches):
        if len(batches) >= _LEAST_FOLDED:
            for observer in observers.values():
                observer.fold = number % FOLDS
        try:
            run.run(*batch, enable_io_processing=False)
        except ModelError as error:
            raise ModelError(f"{error.what} on calibration batch {number}", where=error.where, why=error.why,
                             hint=error.hint) from error.__cause__  # fmt: skip
    for observer in observers.values():
        observer.forget()
    return _clipped(observers)


def _clipped(observers: Mapping[Node, RangeObserver]) -> tuple[Advice, ...]:
    lost = sorted(((observer.lost_db(), node) for node, observer in observers.items()), key=lambda pair: -pair[0])
    worst = [(decibels, node) for decibels, node in lost if decibels > _MUCH_LOST_DB]
    if not worst:
        return ()
    named = ", ".join(f"`{node.target}` ({decibels:.1f} dB)" for decibels, node in worst[:_NAMED])
    return (
        Advice(
            f"fresh data exceed the ranges of {len(worst)} tensors: with those of three quarters of the calibration "
            f"samples the other quarter has more noise in {named}",
            str(origin(worst[0][1])),
            "calibrate on more samples, and on the extremes of real data",
        ),
    )


class _Calibration(Interpreter):
    """Runs a graph batch by batch. Least and greatest of weights are looked for once: they are the same in each."""

    def __init__(self, prepared: GraphModule) -> None:
        super().__init__(prepared)
        self._settled = set[Node]()

    def run_node(self, n: Node) -> Any:
        if n in self._settled:
            return self.fetch_args_kwargs_from_env(n)[0][0]
        if self._sees_weights(n):
            self._settled.add(n)
        op = op_quantization(n)
        if isinstance(op, OneToOne | Recurrent) and op.inside and ANNOTATION in n.meta:
            args, options = self.fetch_args_kwargs_from_env(n)
            if not op.inside(*args, **options).isfinite().all():
                raise ModelError(
                    f"`{n.target}` overflows in float32", where=str(origin(n)),
                    why="what it computes inside is infinite or of no digit, so that PyTorch's result is not the op's",
                    hint="scale what it reads, or exclude this op to have what PyTorch gives",
                )  # fmt: skip
        try:
            return super().run_node(n)
        except ValueError as error:
            if n.op != "call_module":
                raise failure(n, error) from error
            seen = n.all_input_nodes[0]
            raise ModelError(
                f"the result of `{seen.target}` cannot be quantized", where=str(origin(seen)), why=str(error),
                hint="mask with a finite number such as -1e4, divide by no zero, or exclude this op",
            ) from error  # fmt: skip
        except Exception as error:
            raise failure(n, error) from error

    def _sees_weights(self, n: Node) -> bool:
        """Whether a node looks for the least and greatest of what is the same in each batch."""
        if n.op != "call_module" or n.all_input_nodes[0].op != "get_attr":
            return False
        return not isinstance(self.module.get_submodule(str(n.target)), RangeObserver)
