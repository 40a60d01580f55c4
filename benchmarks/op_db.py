"""PyTorch's own op database through the front half: `python benchmarks/op_db.py`, where `expecttest` is installed.

Each float32 sample of `torch.testing`'s `op_db` that is static, small and Core ATen becomes a module. That is captured,
imported and legalized, then quantized to int8 and imported again. A sample is Core ATen where every ATen overload in
its trace (torch.export, then the default decompositions) carries `torch.Tag.core`. On the reference model, the float
module must compute what PyTorch computes, and the integer module what PyTorch's simulation of it computes.
"""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.campaigns.lowering import failure, lowering
from tosaic.frontend import Capture
from tosaic.frontend.decomposition import decomposed

_MOST_ELEMENTS = 4096
_SECONDS = 120.0
# Ops whose tensors behind the first are a layer's parameters.
_LAYERS = ("conv", "linear", "norm", "prelu", "bilinear", "embedding")


@dataclass(frozen=True)
class Outcome:
    """What became of a sample.

    Args:
        real, int8: empty where the sample lowers right, else the error.
        floats: the f32 ops that are left in the int8 module.
    """

    sample: int
    real: str
    int8: str
    floats: int = 0


class Call(nn.Module):
    """An op called with a sample's arguments; the tensors at `places` among their leaves are inputs, others buffers."""

    def __init__(self, op: Any, arguments: tuple, places: Sequence[int]) -> None:
        super().__init__()
        leaves, self.structure = pytree.tree_flatten(arguments)
        self.op, self.places = op, list(places)
        self.leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.held = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and i not in self.places]
        for place in self.held:
            self.register_buffer(f"leaf_{place}", leaves[place])

    def forward(self, *inputs: Tensor) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, inputs, strict=True):
            leaves[place] = tensor
        for place in self.held:
            leaves[place] = self.get_buffer(f"leaf_{place}")
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.op(*args, **kwargs)


def samples(info: Any) -> Iterator[tuple[Call, tuple[Tensor, ...]]]:
    """An op's samples that are static and small: each a module and its inputs."""
    for sample in info.sample_inputs("cpu", torch.float32):
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))
        leaves = pytree.tree_leaves(arguments)
        tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if not tensors or any(not 0 < leaves[i].numel() <= _MOST_ELEMENTS for i in tensors):
            continue
        layer = info.name.startswith("nn.functional") and any(word in info.name for word in _LAYERS)
        places = [i for i in tensors if not leaves[i].is_floating_point()] or tensors[:1] if layer else tensors
        yield Call(info.op, arguments, places), tuple(leaves[i].detach() for i in places)


def is_core(program: ExportedProgram) -> bool:
    """Whether a trace holds Core ATen ops, and at least one; what gives memory as it lies has no result."""
    table, ops = _default_decompositions(), _ops(program)
    if any(torch.Tag.core not in op.tags and op not in table and _stays(op) for op in ops):
        return False
    if any(op in table or torch.Tag.core not in op.tags for op in ops):
        program = program.run_decompositions()
    ops = _ops(program)
    return bool(ops) and all(torch.Tag.core in op.tags and "empty" not in str(op) for op in ops)


def _ops(program: ExportedProgram) -> list[torch._ops.OpOverload]:
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    return [op for op in targets if isinstance(op, torch._ops.OpOverload)]


def _stays(op: torch._ops.OpOverload) -> bool:
    """Whether an op of no table is left as it is: it writes no operand and is not made of others."""
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    return not composite and not op._schema.is_mutable


@cache
def _default_decompositions() -> frozenset[torch._ops.OperatorBase]:
    """The ops that the default decompositions take apart."""
    return frozenset(torch.export.default_decompositions())


def trial(number: int, module: nn.Module, inputs: tuple[Tensor, ...]) -> Outcome | None:
    """One sample; None where it is no static Core ATen program with finite results."""
    try:
        wanted = [one for one in pytree.tree_leaves(module(*inputs)) if isinstance(one, Tensor)]
        program = torch.export.export(module.eval(), inputs)
        if not is_core(program) or not wanted or any(not one.numel() or one.is_complex() for one in wanted):
            return None
        if not all(torch.isfinite(x).all() for x in inputs):
            return None
    except Exception:
        return None
    try:
        capture = Capture("sample", decomposed(program), inputs, (inputs,))
    except Exception as error:
        return Outcome(number, failure(error).detail, failure(error).detail)
    found = lowering(capture, [one.detach().numpy() for one in wanted])
    return Outcome(number, found.real.detail, found.int8.detail, found.floats)


def _all_of(name: str, count: int, pipe: Connection) -> None:
    """The outcomes of `count` samples of an op, spread over all that it has, one by one through a pipe."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = [one for info in _database() if info.full_name == name for one in samples(info)]
    for number in sorted({round(i * (len(found) - 1) / max(1, count - 1)) for i in range(min(count, len(found)))}):
        pipe.send(number)
        pipe.send(trial(number, *found[number]))
    pipe.close()


def _database() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [info for info in op_db if torch.float32 in info.dtypes]


@dataclass
class _Running:
    """An op whose process runs, the sample that it is at, and the outcomes of those before."""

    name: str
    process: Any
    at: int
    outcomes: list[Outcome]


def run(names: Sequence[str], count: int, workers: int) -> Iterator[tuple[str, list[Outcome]]]:
    """The outcomes of each op's samples, each op in a process of its own, which may die or hang."""
    forking = multiprocessing.get_context("fork")
    waiting, running = list(names), dict[Connection, _Running]()
    while waiting or running:
        while waiting and len(running) < workers:
            ours, theirs = forking.Pipe(duplex=False)
            process = forking.Process(target=_all_of, args=(waiting[0], count, theirs))
            process.start()
            theirs.close()
            running[ours] = _Running(waiting.pop(0), process, 0, [])
        ready = [pipe for pipe in wait(list(running), _SECONDS) if isinstance(pipe, Connection)]
        for pipe in ready or list(running):
            one = running[pipe]
            if error := _heard(one, pipe if ready else None):
                one.outcomes.append(Outcome(one.at, error, error))
            elif error is None:
                continue
            del running[pipe]
            yield one.name, one.outcomes


def _heard(one: _Running, pipe: Connection | None) -> str | None:
    """Take in what a process says; None where it goes on, else why it ended, which is empty at its end."""
    if pipe is None:
        one.process.kill()
        return f"no end within {_SECONDS:g} s"
    try:
        said = pipe.recv()
    except EOFError:
        one.process.join()
        return f"the process ended with {one.process.exitcode}" if one.process.exitcode else ""
    if isinstance(said, int):
        one.at = said
    elif isinstance(said, Outcome):
        one.outcomes.append(said)
    return None


@click.command()
@click.option("--ops", default="", help="Names of `op_db`, separated by commas; default: all.")
@click.option("--samples", "count", default=6, show_default=True, help="Of each op, spread over all that it has.")
@click.option("--workers", default=2, show_default=True)
def main(ops: str, count: int, workers: int) -> None:
    """Print a Markdown table: a row for each op, and the share that lowers."""
    names = ops.split(",") if ops else list(dict.fromkeys(info.full_name for info in _database()))
    click.echo("| op | samples | float | int8 | with f32 ops | error |")
    click.echo("|---|---|---|---|---|---|")
    total: Counter[str] = Counter()
    for name, outcomes in run(names, count, workers):
        if not outcomes:
            continue
        row = Counter(
            samples=len(outcomes),
            real=sum(not one.real for one in outcomes),
            int8=sum(not one.int8 for one in outcomes),
            floats=sum(bool(one.floats) for one in outcomes),
        )
        total += row
        errors = "; ".join(
            dict.fromkeys(f"{one.sample}: {one.real or one.int8}" for one in outcomes if one.real or one.int8)
        )
        click.echo(f"| {name} | {row['samples']} | {row['real']} | {row['int8']} | {row['floats']} | {errors} |")
    shares = ", ".join(
        f"{kind} {total[key]} ({total[key] / total['samples']:.1%})"
        for kind, key in (("float", "real"), ("int8", "int8"), ("with f32 ops", "floats"))
    )
    click.echo(f"{total['samples']} samples: {shares}")


if __name__ == "__main__":
    main()
