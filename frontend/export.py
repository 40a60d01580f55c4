"""torch.export: a module as a program, and what it does not take in the user's terms."""

from __future__ import annotations

import logging
import re
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.export._trace
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from tosaic.frontend.canonical import complete_arguments
from tosaic.frontend.interface import Call
from tosaic.frontend.origin import origin
from tosaic.frontend.recurrent_shapes import shapes_without_steps
from tosaic.support.errors import Advice, ModelError, reason

_FOREIGN = re.compile(r"Found <class '(?:[^']*\.)?(?P<name>\w+)'> in output")
"""What torch says of a result that it cannot take apart."""
_NO_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<")
_STANDARD, _INSTALLED = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
_OF_MODES = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RReLU)
"""Modules that compute something else in training mode."""
_SAY_SO = "call .eval() on the model before it is exported"


def export(module: nn.Module, example: Call) -> ExportedProgram:
    """The program of a module in evaluation mode, for arguments like the example's; the module stays as it was.

    Raises:
        ModelError: it does not run on the example, or torch.export refuses it; the message has the user's line.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            "a TorchScript module cannot be compiled",
            hint="give the nn.Module that it was made from, or what torch.export.export makes of that",
        )
    try:
        with warnings.catch_warnings(), _evaluating(module), _silent_export(), shapes_without_steps():
            warnings.simplefilter("ignore")
            return torch.export.export(module, *example)
    except ModelError:
        raise
    except Exception as error:
        _refuse_example(module, example)
        raise _refusal(error) from error


def training_advice(module: nn.Module) -> tuple[Advice, ...]:
    """That a module in training mode is compiled in evaluation mode, where these differ."""
    names = [name for name, one in module.named_modules() if one.training and isinstance(one, _OF_MODES)]
    if not names:
        return ()
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    what = f"the model is in training mode (`{names[0]}`{others}); it is compiled in evaluation mode"
    return (Advice(what, "", "call .eval() on it, and compare with what it gives then"),)


def refuse_training(program: ExportedProgram) -> None:
    """Raise where a program was exported in training mode: what its ops compute then no firmware can.

    Raises:
        ModelError: with the user's line.
    """
    for node in program.graph.nodes:
        if _trains(node):
            raise ModelError("the program was exported in training mode", where=str(origin(node)), hint=_SAY_SO)


def _trains(node: Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    names = (argument.name for argument in node.target._schema.arguments)
    given = dict(zip(names, complete_arguments(node), strict=False))
    drops = given.get("dropout", given.get("p", 1.0))  # a layer of a GRU that drops nothing has no modes
    return any(given.get(name) is True for name in ("train", "training")) and bool(drops)


def _refuse_example(module: nn.Module, example: Call) -> None:
    """Raise where the module itself does not run on the example: no matter of torch.export's."""
    args, kwargs = pytree.tree_map_only(Tensor, torch.clone, example)
    try:
        with torch.no_grad(), _evaluating(module), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module(*args, **kwargs)
    except Exception as error:
        given = ", ".join(_described(leaf) for leaf in pytree.tree_leaves(example))
        raise ModelError(
            "the model does not run on its example inputs",
            where=_users_line(error),
            why=f"{reason(error)}; the example is {given}",
            hint="give an example of the shape and dtype that the model takes",
        ) from error


def _refusal(error: Exception) -> ModelError:
    if found := _FOREIGN.search(str(error)):
        return ModelError(
            f"the model returns a {found['name']}",
            why="torch.export knows no tensors in it",
            hint="return tensors, tuples or dicts; Hugging Face's models leave caches out with use_cache=False",
        )
    if isinstance(error, GuardOnDataDependentSymNode):
        return ModelError(
            "a branch, a size or a number of iterations depends on the values of the inputs",
            where=_users_line(error),
            why="a firmware runs the same ops in every call",
            hint="torch.where or torch.cond in place of `if`, a fixed size in place of a computed one, "
            "a loop of a fixed number of iterations",
        )
    return ModelError(
        "torch.export refused the model",
        where=_users_line(error),
        why=reason(error),
        hint="run torch.export.export on it by itself to see the whole message",
    )


def _users_line(error: Exception) -> str:
    """The innermost line of the model's own code that an exception came through; empty where there is none."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_NO_USERS)
        and (frame.filename.startswith(_INSTALLED) or not frame.filename.startswith(_STANDARD))
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _described(value: object) -> str:
    return (
        f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
    )


@contextmanager
def _silent_export() -> Iterator[None]:
    """Without what torch.export logs of an error, and without the graph so far that it prints with one."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    setattr(torch.export._trace, "print", lambda *_, **__: None)  # noqa: B010  its own name is the built-in's
    try:
        yield
    finally:
        delattr(torch.export._trace, "print")
        logging.disable(before)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode, which it leaves as it was."""
    modes = [(each, each.training) for each in module.modules()]
    if not isinstance(module, GraphModule):  # an exported one has no modes
        module.eval()
    try:
        yield
    finally:
        for each, training in modes:
            each.training = training
