"""Where in the user's model a node comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.fx import Node

from tosaic.frontend.canonical import DEQUANTIZE, QUANTIZE, arguments
from tosaic.support.errors import Error, ModelError
from tosaic.support.locations import UNKNOWN
from tosaic.support.mlir import ir

_FRAME = re.compile(r'File "(?P<file>[^"\x00-\x1f\x7f]+)", line (?P<line>\d+)')
_TORCH = str(Path(torch.__file__).parent)
_GENERATED = "<"  # code that torch writes for branches and loops


@dataclass(frozen=True)
class Origin:
    """Where in the user's model a node was written."""

    file: str
    line: int
    module: str
    op: str

    def __str__(self) -> str:
        module = f" in module `{self.module}`" if self.module else ""
        return f"{self.file}:{self.line} {self.op}{module}"

    def location(self) -> ir.Location:
        """`fused<{nn_module_stack, aten}>[file:line:col]` in the current context."""
        metadata = {"nn_module_stack": ir.StringAttr.get(self.module), "aten": ir.StringAttr.get(self.op)}
        place = ir.Location.file(self.file, self.line, 0)
        return ir.Location.fused([place], ir.DictAttr.get(metadata))


def origin(node: Node) -> Origin:
    """The innermost line outside of torch that made a node, its module's path and its ATen name.

    A quantize or dequantize op has those of the op whose result it rounds, or of the one that reads a weight or input.
    """
    node = _owner(node)
    frames = [(m["file"], int(m["line"])) for m in _FRAME.finditer(node.meta.get("stack_trace") or "")]
    users = [frame for frame in frames if not frame[0].startswith((_TORCH, _GENERATED))]
    file, line = users[-1] if users else (UNKNOWN, 0)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return Origin(file, line, stack[-1][0] if stack else "", str(node.target))


def failure(node: Node, error: Exception) -> ModelError:
    """What `node` does not survive, with the user's line."""
    return ModelError(
        f"`{node.target}` cannot be compiled here",
        where=str(origin(node)),
        why=f"{type(error).__name__}: {_first_line(error)}",
        hint="write it with other ops; the exception's cause has the whole message",
    )


@contextmanager
def naming_ops(step: str) -> Iterator[None]:
    """Turn what torch raises into an error that names the user's line, where torch's message has it."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        places = [(m["file"], m["line"]) for m in _FRAME.finditer(str(error)) if not m["file"].startswith(_TORCH)]
        raise ModelError(
            f"{step} fails on this model",
            where=":".join(places[-1]) if places else "",
            why=f"{type(error).__name__}: {_first_line(error)}",
            hint="write it with other ops, or exclude the layer",
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _owner(node: Node) -> Node:
    casts = QUANTIZE + DEQUANTIZE
    maker = node
    while maker.target in casts and arguments(maker)[0].op == "call_function":
        maker = arguments(maker)[0]
    while maker.target in casts and maker.users:
        maker = next(iter(maker.users))
    return maker
