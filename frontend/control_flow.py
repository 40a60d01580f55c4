"""Branches and loops of torch.export as ops in a row.

A firmware's kernels run in one order, each once. Both branches of a `cond` are computed, and one is selected; a `scan`
or `map` is written step by step, and so is a `while_loop` whose number of iterations depends on no input.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node, map_arg
from torch.utils._pytree import tree_map_only

from tosaic.frontend.canonical import arguments, is_random
from tosaic.frontend.origin import naming_ops, origin
from tosaic.support.errors import ModelError

aten, _HIGHER = torch.ops.aten, torch.ops.higher_order
_MOST_ITERATIONS = 1024
_UNKNOWN = object()


def straightened(program: ExportedProgram) -> ExportedProgram:
    """The program without control flow; itself where it has none.

    Raises:
        ModelError: a loop iterates as often as its inputs say, or too often.
    """
    module = program.graph_module
    if not any(node.target in _WAYS for node in module.graph.nodes):
        return program
    constants = _constants(program)
    while node := next((node for node in module.graph.nodes if node.target in _WAYS), None):
        with module.graph.inserting_before(node):
            results = _WAYS[node.target](_Place(module, node, constants), *arguments(node))
        for user in list(node.users):
            result = results[arguments(user)[1]]
            if not isinstance(result, Node):
                raise ModelError("a branch or a step gives no tensor", where=str(origin(node)))
            user.replace_all_uses_with(result)
            module.graph.erase_node(user)
        module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    with naming_ops("decomposition"):
        return program.run_decompositions({})


def _constants(program: ExportedProgram) -> dict[str, Tensor]:
    """The tensors that no call changes, by the names of their placeholders."""
    signature, values = program.graph_signature, {**program.state_dict, **program.constants}
    written = {spec.target for spec in signature.output_specs if spec.kind is OutputKind.BUFFER_MUTATION}
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    given = [(spec.arg.name, str(spec.target)) for spec in signature.input_specs if spec.kind in kinds]
    return {name: values[target] for name, target in given if target not in written}


class _Place:
    """Where the ops of a branch or a step are written: before the node that they replace."""

    def __init__(self, module: GraphModule, node: Node, constants: dict[str, Tensor]) -> None:
        self._module, self._node, self._constants = module, node, constants

    def op(self, target: Callable, *args: Any) -> Node:
        return self._as_written(self._module.graph.call_function(target, args))

    def inline(self, part: Node, operands: Sequence[Any]) -> list[Any]:
        """Write the graph that `part` names, called with `operands`; returns its results."""

        def written(node: Node, value_of: Callable[[Node], Any]) -> Node:
            if node.op == "call_function":
                return self._as_written(self._module.graph.node_copy(node, value_of))
            name = f"{str(part.target).replace('.', '_')}_{node.target}"
            if not hasattr(self._module, name):
                setattr(self._module, name, operator.attrgetter(str(node.target))(self._body(part)))
            return self._module.graph.get_attr(name)

        return _called(self._body(part), operands, written)

    def _body(self, part: Node) -> GraphModule:
        body = self._module.get_submodule(str(part.target))
        assert isinstance(body, GraphModule)
        return body

    def _as_written(self, node: Node) -> Node:
        """Named as the user's line with the branch or loop; torch knows no lines inside of it."""
        node.meta |= {key: self._node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in self._node.meta}
        return node

    def known(self, value: Any) -> Any:
        """What an operand is, where it depends on no input."""
        if not isinstance(value, Node):
            return value
        if value.op == "placeholder":
            return self._constants.get(value.name, _UNKNOWN)
        return _computed(value, self.known) if value.op == "call_function" else _UNKNOWN

    def outcome(self, part: Node, operands: Sequence[Any]) -> list[Any]:
        """What the graph that `part` names gives, as far as known `operands` tell."""
        return _called(
            self._body(part),
            operands,
            lambda node, value_of: _computed(node, value_of) if node.op == "call_function" else _UNKNOWN,
        )

    def refuse(self, what: str, why: str = "", hint: str = "") -> ModelError:
        return ModelError(what, where=str(origin(self._node)), why=why, hint=hint)


def _called(body: GraphModule, operands: Sequence[Any], make: Callable[[Node, Callable], Any]) -> list[Any]:
    """The results of a graph whose placeholders are `operands`, and whose other nodes are what `make` makes of them."""
    given, values = iter(operands), dict[Node, Any]()
    for node in body.graph.nodes:
        if node.op != "output":
            values[node] = next(given) if node.op == "placeholder" else make(node, values.__getitem__)
    results = arguments(body.graph.output_node())[0]
    listed = results if isinstance(results, tuple | list) else [results]
    return [values[one] if isinstance(one, Node) else one for one in listed]


def _computed(node: Node, value_of: Callable[[Node], Any]) -> Any:
    """What a node gives, where all its operands are known and it does not draw numbers."""
    operands = {one: value_of(one) for one in node.all_input_nodes}
    if is_random(node) or any(value is _UNKNOWN for value in operands.values()):
        return _UNKNOWN
    args, kwargs = map_arg((node.args, node.kwargs), operands.__getitem__)
    copies = tree_map_only(Tensor, torch.clone, (args, kwargs))
    assert callable(node.target)
    return node.target(*copies[0], **copies[1])


def _cond(place: _Place, which: Any, true: Node, false: Node, operands: Sequence[Any] = ()) -> list[Any]:
    """Both branches, and of each result the one that holds."""
    known = place.known(which)
    if known is not _UNKNOWN:
        return place.inline(true if bool(known) else false, operands)
    pairs = zip(place.inline(true, operands), place.inline(false, operands), strict=True)
    return [place.op(aten.where.self, which, one, other) if isinstance(one, Node) else one for one, other in pairs]


def _while_loop(
    place: _Place, more: Node, iteration: Node, carried: Sequence[Any], others: Sequence[Any] = ()
) -> list[Any]:
    """Iteration by iteration."""
    values, known = list(carried), [place.known(value) for value in carried]
    constants = [place.known(value) for value in others]
    for _ in range(_MOST_ITERATIONS + 1):
        (goes_on,) = place.outcome(more, [*known, *constants])
        if goes_on is _UNKNOWN:
            raise place.refuse(
                "how often the loop iterates depends on the inputs",
                hint="let it iterate a fixed number of times, and let torch.where keep what is done",
            )
        if not goes_on:
            return values
        known = place.outcome(iteration, [*known, *constants])
        values = place.inline(iteration, [*values, *others])
    raise place.refuse(
        f"the loop iterates more than {_MOST_ITERATIONS} times", why="it is written iteration by iteration"
    )


def _scan(
    place: _Place, step: Node, carried: Sequence[Any], rows: Sequence[Node], others: Sequence[Any] = ()
) -> list[Any]:
    """Step by step, [T, ...] in and out."""
    values, results = list(carried), list[list[Any]]()
    for given in _rows(place, rows):
        found = place.inline(step, [*values, *given, *others])
        values = found[: len(values)]
        results.append(found[len(values) :])
    return [*values, *_stacked(place, results)]


def _map(place: _Place, function: Node, rows: Sequence[Node], others: Sequence[Any] = ()) -> list[Any]:
    """Row by row."""
    return _stacked(place, [place.inline(function, [*given, *others]) for given in _rows(place, rows)])


def _rows(place: _Place, tensors: Sequence[Node]) -> Iterator[list[Node]]:
    iterations = tensors[0].meta["val"].shape[0]
    if iterations > _MOST_ITERATIONS:
        raise place.refuse(
            f"the loop iterates {iterations} times",
            why=f"it is written iteration by iteration, {_MOST_ITERATIONS} at most",
        )
    for number in range(iterations):
        yield [place.op(aten.select.int, tensor, 0, number) for tensor in tensors]


def _stacked(place: _Place, results: Sequence[Sequence[Any]]) -> list[Node]:
    return [place.op(aten.stack.default, list(column)) for column in zip(*results, strict=True)]


_WAYS: dict[Any, Callable[..., list[Any]]] = {
    _HIGHER.cond: _cond,
    _HIGHER.while_loop: _while_loop,
    _HIGHER.scan: _scan,
    _HIGHER.map_impl: _map,
}
