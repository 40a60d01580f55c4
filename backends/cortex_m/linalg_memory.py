"""The memory of a kernel of linalg: its C signature, constants in params, and allocations in scratch memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.support.attributes import text_of
from tosaic.support.errors import BackendError
from tosaic.support.functions import body_of, retype
from tosaic.support.mlir import dense_values, dialect, ir, walk

_ALIGNMENT = 16


def set_c_signature(kernel: ir.Operation) -> tuple[ir.Value, ir.Value]:
    """Append `params` and `scratch`, of no size yet, to the arguments."""
    block = body_of(kernel)
    nothing = ir.MemRefType.get([0], ir.IntegerType.get_signless(8))
    params, scratch = (block.add_argument(nothing, kernel.location) for _ in range(2))
    kernel.attributes["llvm.bareptr"] = ir.UnitAttr.get()
    noalias = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
    kernel.attributes["arg_attrs"] = ir.ArrayAttr.get([noalias] * len(block.arguments))
    return params, scratch


def _resize(kernel: ir.Operation, argument: ir.Value, size: int) -> None:
    argument.set_type(ir.MemRefType.get([size], ir.IntegerType.get_signless(8)))
    retype(kernel)


def _view(kernel: ir.Operation, op: ir.Operation, argument: ir.Value, offset: int) -> None:
    """Replace `op`, which makes a buffer, by a view of `argument` at a byte offset."""
    memref, arith = dialect("memref"), dialect("arith")
    with ir.InsertionPoint.at_block_begin(body_of(kernel)), op.location:
        position = arith.ConstantOp(ir.IndexType.get(), offset).result
        view = memref.ViewOp(op.results[0].type, argument, position, []).result
    op.results[0].replace_all_uses_with(view)
    op.erase()


def constants_to_params(module: ir.Module, kernel: ir.Operation, argument: ir.Value) -> Params:
    """Move the values of memref.global into the packed params."""
    params = Params()
    offsets: dict[str, int] = {}
    constants = {
        text_of(op.operation, "sym_name"): op.operation
        for op in module.body.operations
        if op.operation.name == "memref.global"
    }
    for name, op in constants.items():
        offsets[name] = params.add(dense_values(op.attributes["initial_value"]))
    _resize(kernel, argument, len(params))
    for op in walk(kernel):
        if op.name == "memref.get_global":
            _view(kernel, op, argument, offsets[text_of(op, "name")])
    for op in constants.values():
        op.erase()
    return params


def allocations_to_scratch(kernel: ir.Operation, argument: ir.Value) -> int:
    """Give every allocation a place in scratch; those that never live together share it. Returns scratch's bytes."""
    allocations = [op for op in walk(kernel) if op.name in ("memref.alloc", "memref.alloca")]
    order = {op: i for i, op in enumerate(op.operation for op in body_of(kernel))}
    lifetimes = [_lifetime(op, order) for op in allocations]
    sizes = [_bytes(op) for op in allocations]
    offsets = pack(lifetimes, sizes)
    total = max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)
    _resize(kernel, argument, total)
    for op, offset in zip(allocations, offsets, strict=True):
        _view(kernel, op, argument, offset)
    return total


def _bytes(allocation: ir.Operation) -> int:
    kind = ir.MemRefType(allocation.results[0].type)
    if not kind.has_static_shape:
        raise BackendError("a kernel needs a buffer of a size that only the run knows", why=str(allocation))
    element = kind.element_type
    width = element.width if isinstance(element, ir.IntegerType | ir.FloatType) else 32
    storage = 1 << max(0, math.ceil(math.log2(width / 8)))
    return math.prod(kind.shape) * storage


def _lifetime(allocation: ir.Operation, order: dict[ir.Operation, int]) -> tuple[int, int]:
    """The first and the last operation of the function's body that may touch the buffer."""
    touched, values = set(), [allocation.results[0]]
    while values:
        for use in values.pop().uses:
            user = use.owner.operation
            touched.add(_position(user, order))
            values += [value for value in user.results if isinstance(value.type, ir.MemRefType)]
    return (min(touched), max(touched)) if touched else (0, 0)


def _position(op: ir.Operation, order: dict[ir.Operation, int]) -> int:
    while op not in order:
        op = op.parent.operation
    return order[op]


def pack(lifetimes: Sequence[tuple[int, int]], sizes: Sequence[int]) -> list[int]:
    """Byte offsets, largest buffer first, each at the lowest place free during its life: from first to last of it."""
    offsets = [0] * len(sizes)
    placed: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        first, last = lifetimes[i]
        rivals = [j for j in placed if lifetimes[j][0] <= last and first <= lifetimes[j][1]]
        offset = 0
        for j in sorted(rivals, key=lambda j: offsets[j]):
            if offsets[j] >= offset + sizes[i]:
                break
            offset = max(offset, -(-(offsets[j] + sizes[j]) // _ALIGNMENT) * _ALIGNMENT)
        offsets[i] = offset
        placed.append(i)
    return offsets
