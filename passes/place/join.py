"""Calls of `main` become one: the functions of a stream are joined to one function."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.support.functions import body_of, callee_of, computing_ops, returned
from tosaic.support.mlir import functions, ir
from tosaic.support.tosa_ops import CONSTANT
from tosaic.support.values import producer, users

_VIEW, _REASON = "tosa.reshape", "tosaic.reason"


def join(module: ir.Module, names: Sequence[str], symbol: str) -> None:
    """Replace the calls of the functions `names` in `main` by one call of a new function `symbol`, in place.

    Args:
        names: in the order of their calls, between which `main` holds nothing that reads what they make.
    """
    known = functions(module)
    calls = [op.operation for op in body_of(known["main"]).operations if op.operation.name == "func.call"]
    calls = [call for call in calls if callee_of(call) in names]
    inside = set(calls)

    def is_inside(user: ir.Operation) -> bool:
        return user in inside or (user.name == _VIEW and all(map(is_inside, users(user.results[0]))))

    read = dict.fromkeys(_viewed(operand) for call in calls for operand in call.operands)
    inputs = [value for value in read if producer(value) not in inside and producer(value, *CONSTANT) is None]
    outputs = [value for call in calls for value in call.results if not all(map(is_inside, users(value)))]
    with module.context, calls[-1].location:
        _joined(module, [(call, known[callee_of(call)]) for call in calls], inputs, outputs, symbol)
        call = ir.Operation.create(
            "func.call",
            results=[value.type for value in outputs],
            operands=inputs,
            attributes={"callee": ir.FlatSymbolRefAttr.get(symbol)},
            ip=ir.InsertionPoint(calls[-1]),
        )
    for old, new in zip(outputs, call.results, strict=True):
        old.replace_all_uses_with(new)
        _move_views(new, call)
    for old_call in reversed(calls):
        for value in old_call.results:
            _erase_views(value)
        old_call.erase()
    for value in call.results:
        _erase_views(value)
    for name in names:
        known[name].erase()


def _joined(
    module: ir.Module,
    parts: Sequence[tuple[ir.Operation, ir.Operation]],
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    symbol: str,
) -> None:
    """Append a function of copies of what the called functions hold; `parts` are calls with their functions."""
    kind = ir.FunctionType.get([value.type for value in inputs], [value.type for value in outputs])
    _, first = parts[0]
    attributes = {name: first.attributes[name] for name in first.attributes}
    attributes |= {"sym_name": ir.StringAttr.get(symbol), "function_type": ir.TypeAttr.get(kind)}
    made = ir.Operation.create("func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(module.body))
    block = made.regions[0].blocks.append(*kind.inputs, arg_locs=[first.location] * len(inputs))
    copies: dict[ir.Value, ir.Value] = dict(zip(inputs, block.arguments, strict=True))

    def copy(op: ir.Operation, why: ir.Attribute | None = None) -> None:
        """Of an op and, of what it reads, what is not copied yet: constants, and views between calls.

        Args:
            why: the reason of what reads a view.
        """
        for operand in op.operands:
            if operand not in copies:
                copy(operand.owner, why)
        made = op.clone().operation
        if why is not None and op.name == _VIEW:
            made.attributes[_REASON] = why
        for index, operand in enumerate(list(op.operands)):
            made.operands[index] = copies[operand]
        copies.update(zip(op.results, made.results, strict=True))

    with ir.InsertionPoint(block):
        for call, function in parts:
            reasons = (op.attributes[_REASON] for op in computing_ops(function) if _REASON in op.attributes)
            why = next(reasons, None)
            for inner, outer in zip(body_of(function).arguments, call.operands, strict=True):
                if outer not in copies:
                    copy(outer.owner, why)
                copies[inner] = copies[outer]
            *ops, _ = [op.operation for op in body_of(function).operations]
            for op in ops:
                copy(op)
            copies.update(zip(call.results, (copies[value] for value in returned(function)), strict=True))
        ir.Operation.create("func.return", operands=[copies[value] for value in outputs])


def _viewed(value: ir.Value) -> ir.Value:
    """What `value` shows in another shape."""
    while (view := producer(value, _VIEW)) is not None:
        value = view.operands[0]
    return value


def _move_views(value: ir.Value, behind: ir.Operation) -> None:
    """Let views of `value`, and views of these, stand behind the op that makes it now."""
    for user in users(value):
        if user.name == _VIEW:
            shape = user.operands[1].owner
            if behind.is_before_in_block(shape):  # another view may read it before
                shape.move_before(behind)
            user.move_after(behind)
            _move_views(user.results[0], user)


def _erase_views(value: ir.Value) -> None:
    """Erase the views of a value that nothing reads any more."""
    for user in users(value):
        if user.name == _VIEW:
            _erase_views(user.results[0])
            if not users(user.results[0]):
                user.erase()
