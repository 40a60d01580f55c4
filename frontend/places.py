"""What a model computes in floats of a place alone, as angles of rotary positions, becomes a table of all places."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from tosaic.frontend.canonical import arguments, is_random
from tosaic.frontend.parameters import add_buffer, parameter
from tosaic.frontend.rows import WRITE_ROWS

aten = torch.ops.aten
_MOST = 2**17  # elements of a table
_LOOK_UPS = {aten.embedding.default, aten.index_select.default, aten.index.Tensor, aten.gather.default}


def tabulate_places(module: GraphModule) -> None:
    """Floats that are computed of an integer alone become rows of a table, in place.

    An integer that says which row is read or written has as many values as there are rows. By 8 bits of a place of 512,
    a cosine of it would be of no use; by a table it is as exact as any other tensor. Selections by comparison stay.
    """
    for place in module.graph.nodes:
        if place.op == "placeholder" and _is_index(place):
            _tabulate(module, place)
    module.graph.eliminate_dead_code()


def _is_index(node: Node) -> bool:
    return _is_integer(node) and node.meta["val"].numel() == 1


def _is_integer(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and not value.is_floating_point() and value.dtype is not torch.bool


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point()


def _tabulate(module: GraphModule, place: Node) -> None:
    own = _computed_of(place)
    cast = set[Node]()
    for node in own:
        reads = [one for one in node.all_input_nodes if one in own]
        made = _is_float(node) and node.target not in _LOOK_UPS and any(map(_is_integer, reads))
        if made or any(one in cast for one in reads):
            cast.add(node)
    ends = [node for node in own if node in cast and _is_float(node) and any(user not in cast for user in node.users)]
    if not ends or not (count := _count(module, place, own)):
        return
    for node in ends:
        if prod(node.meta["val"].shape) * count > _MOST:
            continue
        rows = [_value(module, place, number, own, node) for number in range(count)]
        table = torch.stack([row.reshape(-1) for row in rows])
        if table.isfinite().all():
            _look_up(module, place, node, table)


def _computed_of(place: Node) -> dict[Node, None]:
    """The nodes that read nothing but a place and constants, in order."""
    own = {place: None}
    for node in place.graph.nodes:
        reads = node.all_input_nodes
        known = all(one in own or one.op == "get_attr" for one in reads)
        if node.op == "call_function" and any(one in own for one in reads) and known and not is_random(node):
            own[node] = None
    return own


def _count(module: GraphModule, place: Node, own: dict[Node, None]) -> int:
    """How many values a place has; 0 where nothing says that."""
    for rows, index in _rows_by_index(own):
        if all(bool((_value(module, place, number, own, index) == number).all()) for number in range(rows)):
            return rows
    return 0


def _rows_by_index(own: dict[Node, None]) -> list[tuple[int, Node]]:
    """The indices of look-ups and writes, and the rows that there are, the fewest first."""
    found = list[tuple[int, Node]]()
    for node in own:
        for user in node.users:
            args = arguments(user)
            if user.target is WRITE_ROWS and args[2] is node:
                found.append((args[0].meta["val"].shape[args[1]], node))
            elif user.target is aten.embedding.default and args[1] is node:
                found.append((args[0].meta["val"].shape[0], node))
            elif user.target is aten.index_select.default and args[2] is node:
                found.append((args[0].meta["val"].shape[args[1]], node))
    return sorted(found, key=lambda pair: pair[0])


def _value(module: GraphModule, place: Node, number: int, own: dict[Node, None], wanted: Node) -> Tensor:
    """What a node is at a place."""
    known: dict[Node, Any] = {place: torch.full(place.meta["val"].shape, number)}

    def value(node: Node) -> Any:
        if node not in known:
            if node.op == "get_attr":
                known[node] = parameter(module, node)
            else:
                target: Any = node.target
                known[node] = target(*map_arg(node.args, value), **map_arg(node.kwargs, value))
        return known[node]

    return value(wanted)


def _look_up(module: GraphModule, place: Node, node: Node, table: Tensor) -> None:
    rows = add_buffer(module, node, table, "places")
    with module.graph.inserting_before(node):
        index = module.graph.call_function(aten.view.default, (place, [1]))
        index.meta = {**place.meta, "val": place.meta["val"].reshape(1)}
        row = module.graph.call_function(aten.embedding.default, (rows, index))
        row.meta = {**node.meta, "val": node.meta["val"].reshape(1, -1)}
        shaped = module.graph.call_function(aten.view.default, (row, list(node.meta["val"].shape)))
        shaped.meta = dict(node.meta)
    node.replace_all_uses_with(shaped)
