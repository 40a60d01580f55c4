"""Complex tensors as pairs of real ones: TOSA has none.

Every op on them is taken apart into ops on real and imaginary parts, which `aten.complex` joins and `aten.view_as_real`
tells apart again. Then each joined tensor is its two parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_any, tree_map

from tosaic.frontend.canonical import arguments, computed
from tosaic.frontend.origin import origin
from tosaic.support.errors import ModelError

aten = torch.ops.aten
_COMPLEX, _PARTS = aten.complex.default, aten.view_as_real.default

_PARTWISE = (
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.permute.default, aten.transpose.int,
    aten.t.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
    aten.slice.Tensor, aten.select.int, aten.expand.default, aten.clone.default, aten.contiguous.default,
    aten.cat.default, aten.stack.default, aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default,
    aten.unbind.int, aten.flip.default, aten.roll.default, aten.pad.default, aten.constant_pad_nd.default,
    aten.index_select.default, aten.index.Tensor, aten.repeat.default, aten.neg.default, aten.sum.default,
    aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.cumsum.default,
)  # fmt: skip
"""Linear ops without a second operand."""


def complex_decompositions(program: ExportedProgram) -> dict[Any, Callable]:
    """How the ops on complex tensors of a program are taken apart, by op; other ops of the same name stay whole."""
    if not any(_is_complex(node.meta.get("val")) for node in computed(program)):
        return {}
    return {op: _of_complex(rule) for op, rule in _RULES.items()}


def is_joint(op: Any) -> bool:
    """Whether an op joins parts, or tells them apart."""
    return op in (_COMPLEX, _PARTS)


def with_parts(program: ExportedProgram) -> ExportedProgram:
    """Let what reads the parts of a joined tensor read them as they were before, in place."""
    graph = program.graph
    for node in [node for node in graph.nodes if node.target is _PARTS]:
        joined = arguments(node)[0]
        if joined.target is not _COMPLEX:
            continue
        last = len(node.meta["val"].shape) - 1
        for user in [user for user in node.users if user.target is aten.select.int]:
            _, axis, index = arguments(user)
            if axis == last:
                _replace(program, user, joined.args[index])
        if any(user.users or user.op == "output" for user in node.users):
            with graph.inserting_before(node):
                stacked = graph.call_function(aten.stack.default, (list(joined.args), last))
            stacked.meta = dict(node.meta)
            _replace(program, node, stacked)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def _replace(program: ExportedProgram, node: Node, by: Node) -> None:
    """Also where it is a result of the program."""
    node.replace_all_uses_with(by)
    program.graph_signature.replace_all_uses(node.name, by.name)


def refuse_complex(program: ExportedProgram) -> None:
    """Refuse what is left of complex tensors.

    Raises:
        ModelError: an input, a result or an op on such tensors, with the user's line.
    """
    for node in program.graph.nodes:
        if not _is_complex(node.meta.get("val")):
            continue
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs:
            raise ModelError(f"the input `{node.name}` is complex", hint="take torch.view_as_real of it instead")
        for user in node.users:
            if user.op == "output":
                raise ModelError("a result is complex", where=str(origin(node)), hint="return torch.view_as_real of it")
            if not is_joint(user.target):
                raise ModelError(
                    f"no lowering for {user.target} of complex numbers",
                    where=str(origin(user)),
                    hint="write it in parts",
                )


def _is_complex(value: object) -> bool:
    """Whether a tensor, a number or a dtype among the leaves is."""

    def is_it(one: object) -> bool:
        kind = one.dtype if isinstance(one, Tensor) else one
        return isinstance(kind, complex) or (isinstance(kind, torch.dtype) and kind.is_complex)

    return tree_any(is_it, value)


def _of_complex(rule: Callable) -> Callable:
    def taken_apart(*args: Any, **kwargs: Any) -> Any:
        return rule(*args, **kwargs) if _is_complex((args, kwargs)) else NotImplemented

    return taken_apart


def parts(x: Tensor | complex) -> tuple[Any, Any]:
    """The real and the imaginary part of a tensor or number; 0.0 for that of a real one."""
    if not isinstance(x, Tensor):
        return complex(x).real, complex(x).imag
    if not x.is_complex():
        return x, 0.0
    pair = torch.view_as_real(x)
    return pair.select(-1, 0), pair.select(-1, 1)


def _joined(real: Any, imaginary: Any) -> Tensor:
    """One of the two may be a number."""
    like = real if isinstance(real, Tensor) else imaginary
    return torch.complex(*(one if isinstance(one, Tensor) else torch.full_like(like, one) for one in (real, imaginary)))


def _part(number: int, leaf: Any) -> Any:
    return parts(leaf)[number] if _is_complex(leaf) else leaf


def _partwise(op: Callable) -> Callable:
    def rule(*args: Any, **kwargs: Any) -> Any:
        real, imaginary = (op(*tree_map(partial(_part, part), args), **kwargs) for part in (0, 1))
        if isinstance(real, Tensor):
            return _joined(real, imaginary)
        return [_joined(one, other) for one, other in zip(real, imaginary, strict=True)]

    return rule


def _add(x: Any, y: Any, *, alpha: complex = 1) -> Tensor:
    (a, b), (c, d) = parts(x), parts(y if alpha == 1 else _mul(y, alpha))
    return _joined(a + c, b + d)


def _sub(x: Any, y: Any, *, alpha: complex = 1) -> Tensor:
    return _add(x, y, alpha=-alpha)


def _mul(x: Any, y: Any) -> Any:
    (a, b), (c, d) = parts(x), parts(y)
    return _joined(_times(a, c) - _times(b, d), _times(a, d) + _times(b, c))


def _times(a: Any, b: Any) -> Any:
    """Nothing is computed where one of the two is the number 0."""
    return 0.0 if any(not isinstance(one, Tensor) and one == 0 for one in (a, b)) else a * b


def _div(x: Any, y: Any) -> Tensor:
    return _mul(x, _reciprocal(y))


def _reciprocal(x: Any) -> Any:
    if not _is_complex(x):
        return 1 / x
    a, b = parts(x)
    norm = a * a + b * b
    return _joined(a / norm, -b / norm) if isinstance(x, Tensor) else 1 / x


def _copied(x: Tensor, *args: Any, dtype: torch.dtype | None = None, **_options: Any) -> Tensor:
    """As float32 at most; without its imaginary part where real numbers are asked for."""
    wanted = dtype or next((one for one in args if isinstance(one, torch.dtype)), x.dtype)
    if wanted.is_complex:
        return x if x.is_complex() else torch.complex(x.float(), torch.zeros_like(x.float()))
    return parts(x)[0].to(wanted)


def _product(op: Callable) -> Callable:
    """Of matrices."""

    def rule(x: Tensor, y: Tensor) -> Tensor:
        (a, b), (c, d) = parts(x), parts(y)
        if not isinstance(b, Tensor):
            return _joined(op(a, c), op(a, d))
        if not isinstance(d, Tensor):
            return _joined(op(a, c), op(b, c))
        return _joined(op(a, c) - op(b, d), op(a, d) + op(b, c))

    return rule


def _abs(x: Tensor) -> Tensor:
    a, b = parts(x)
    return torch.sqrt(a * a + b * b)


def _angle(x: Tensor) -> Tensor:
    a, b = parts(x)
    return torch.atan2(b, a)


def _conjugate(x: Tensor) -> Tensor:
    a, b = parts(x)
    return _joined(a, -b)


def _exp(x: Tensor) -> Tensor:
    a, b = parts(x)
    size = torch.exp(a)
    return _joined(size * torch.cos(b), size * torch.sin(b))


def _power(x: Tensor, exponent: complex) -> Tensor:
    """By a small whole number; others stay without a lowering."""
    if exponent not in (2, 3):
        return NotImplemented
    square = _mul(x, x)
    return square if exponent == 2 else _mul(square, x)


_RULES: dict[Any, Callable] = {
    **{op: _partwise(op) for op in _PARTWISE},
    **{op: _product(op) for op in (aten.mm.default, aten.bmm.default, aten.matmul.default)},
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), _add),
    **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), _sub),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), _mul),
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), _div),
    **dict.fromkeys((aten._conj.default, aten.conj.default, aten._conj_physical.default), _conjugate),
    **dict.fromkeys((aten.resolve_conj.default, aten.resolve_neg.default), lambda x: x),
    **dict.fromkeys((aten._to_copy.default, aten.to.dtype), _copied),
    aten.reciprocal.default: _reciprocal,
    aten.abs.default: _abs,
    aten.angle.default: _angle,
    aten.exp.default: _exp,
    aten.pow.Tensor_Scalar: _power,
    aten.square.default: lambda x: _mul(x, x),
    aten.real.default: lambda x: parts(x)[0],
    aten.imag.default: lambda x: parts(x)[1],
}
"""Each returns NotImplemented where it does not know its arguments."""
