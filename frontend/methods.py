"""A model with several methods: modules that share buffers and weights, as one program that calls each once, in
turn.

What a buffer holds when a method begins goes through an op of its own, `torch.ops.tosaic.enter`. There the program is
cut again once its formats are known (`passes/place/methods.py`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.fx import Node
from torch.utils import _pytree as pytree

from tosaic.frontend.canonical import arguments
from tosaic.frontend.interface import Call, as_call
from tosaic.support.errors import ModelError
from tosaic.support.methods import Method

Methods: TypeAlias = Mapping[str, tuple[nn.Module, Any]]
"""Each method's module and example inputs, by the method's name."""

_RESERVED = {"init", "init_static", "invoke", "reset", "selftest", "begin", "feed", "inputs", "outputs", "instance",
             "state", "states", "save", "restore"}  # fmt: skip
"""What a model's header defines by itself."""


@torch.library.custom_op("tosaic::enter", mutates_args=())
def enter(x: Tensor, method: int, buffer: int) -> Tensor:
    """`x`, which is what buffer number `buffer` holds when method number `method` begins."""
    return x.clone()


@enter.register_fake
def _(x: Tensor, method: int, buffer: int) -> Tensor:
    return x.new_empty(x.shape)


ENTER = torch.ops.tosaic.enter.default


class InTurn(nn.Module):
    """Calls each of several modules once, in turn; `forward` takes what `as_one_call` makes of their inputs.

    The modules are copies, in which tensors of one name and equal values are one tensor.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        modules = copy.deepcopy(dict(modules))
        _share(modules)
        for name, module in modules.items():
            _check_name(name)
            self.add_module(name, module)

    def forward(self, **calls: Any) -> dict[str, Any]:
        """The results of each method, and what each buffer held before each but the first."""
        results, entered = {}, list[Tensor]()
        buffers, held = list(self.buffers()), self._held()
        for number, (name, inputs) in enumerate(calls.items()):
            if number:
                entered += [enter(buffer, number, place) for place, buffer in enumerate(buffers)]
            positional = isinstance(inputs, tuple)
            module = self.get_submodule(name)
            results[name] = module(*inputs) if positional else module(**inputs)
            for owner, attribute, buffer in held:
                if (value := getattr(owner, attribute)) is not buffer:  # assigned, and not written
                    setattr(owner, attribute, buffer)
                    buffer.copy_(value)
        return {**results, "entered": entered}

    def _held(self) -> list[tuple[nn.Module, str, Tensor]]:
        """The buffers of each module, by their names there."""
        modules = list(self.modules())
        return [(one, name, buffer) for one in modules for name, buffer in one.named_buffers(recurse=False)]

    def as_one_call(self, inputs: Mapping[str, Any]) -> Call:
        """The inputs of each method, by its name, as one call of all.

        Raises:
            ModelError: a method has none, or there is no such method.
        """
        names = list(self._modules)
        if set(inputs) != set(names):
            raise ModelError(f"the methods are {', '.join(names)}", why=f"inputs are given for {', '.join(inputs)}")
        return (), {name: _by_name(self.get_submodule(name), as_call(inputs[name])) for name in names}


def joined(methods: Methods) -> tuple[InTurn, Call]:
    """One module of several methods, and an example call.

    Raises:
        ModelError: there is no module, or a method cannot have its name.
    """
    for name, given in methods.items():
        if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], nn.Module):
            raise ModelError(f"the method `{name}` must be (module, example inputs)")
    if len(methods) < 2:
        raise ModelError("there must be two methods at least", hint="give a module alone")
    module = InTurn({name: module for name, (module, _) in methods.items()})
    return module, module.as_one_call({name: inputs for name, (_, inputs) in methods.items()})


def _check_name(name: str) -> None:
    if not name.isidentifier() or not name.isascii() or name in _RESERVED | {"entered"}:
        raise ModelError(f"a method cannot be called `{name}`", hint="a word of letters, such as `prefill`")


def _share(modules: Mapping[str, nn.Module]) -> None:
    """Let tensors that modules have under one name be one tensor, where they are equal.

    Raises:
        ModelError: buffers of one name and shape begin with different values.
    """
    known: dict[str, Tensor] = {}
    for method, module in modules.items():
        for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
            first = known.setdefault(path, tensor)
            if first is tensor or first.shape != tensor.shape or first.dtype != tensor.dtype:
                continue
            if not first.equal(tensor):
                if isinstance(tensor, nn.Parameter):
                    continue
                raise ModelError(f"the buffer `{path}` of `{method}` begins with other values than another method's")
            owner, _, name = path.rpartition(".")
            setattr(module.get_submodule(owner), name, first)


def _by_name(module: nn.Module, call: Call) -> Any:
    """The arguments of a call by the names of the parameters; a tuple where these have none."""
    args, kwargs = call
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError:
        return args if not kwargs else dict(kwargs)
    kinds = {bound.signature.parameters[name].kind for name in bound.arguments}
    return dict(bound.arguments) if kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD} else args


def exported_methods(example: Call, program: ExportedProgram) -> tuple[Method, ...]:
    """The methods of a program that was exported from `InTurn`, with their shares of its flat inputs and results."""
    _, calls = example
    spec = program.call_spec.out_spec
    assert spec is not None
    flat = arguments(program.graph.output_node())[0]
    results = pytree.tree_unflatten(list(flat[len(flat) - spec.num_leaves :]), spec)
    return tuple(Method(name, _count(Tensor, inputs), _count(Node, results[name])) for name, inputs in calls.items())


def _count(kind: type, nested: Any) -> int:
    return sum(isinstance(leaf, kind) for leaf in pytree.tree_leaves(nested))


def enter_methods(program: ExportedProgram, module: InTurn, methods: Sequence[Method]) -> dict[Node, str]:
    """Let each method of a functional program read what buffers hold by `enter` alone, in place.

    A buffer that no method writes is read as it is. What told the buffers' values is no result any more.

    Returns:
        Those ops of `enter`, and the path of each one's buffer.

    Raises:
        ModelError: a method reads what another one made and no buffer keeps.
    """
    paths = [path for path, _ in module.named_buffers()]
    entered = [node for node in program.graph.nodes if node.target is ENTER]
    results, specs = list(arguments(program.graph.output_node())[0]), program.graph_signature.output_specs
    kept = [number for number, node in enumerate(results) if node not in entered]
    results, specs[:] = [results[number] for number in kept], [specs[number] for number in kept]
    first = sum(spec.kind is not OutputKind.USER_OUTPUT for spec in specs)
    written = {str(spec.target) for spec in specs if spec.kind is OutputKind.BUFFER_MUTATION}
    owners = iter(number for number, each in enumerate(methods) for _ in range(each.results))
    given = [len(methods)] * first + [next(owners) if isinstance(node, Node) else 0 for node in results[first:]]
    places = {node: place for place, node in enumerate(program.graph.nodes)}
    for node in entered:
        source, method, buffer = arguments(node)
        if paths[buffer] not in written:
            continue
        for user in list(source.users):
            if user.op != "output" and places[user] > places[node]:
                user.replace_input_with(source, node)
        for number, result in enumerate(results):
            if result is source and given[number] >= method:
                results[number] = node
    program.graph.output_node().args = (tuple(results),)
    for spec, result in zip(specs, results, strict=True):
        if isinstance(result, Node):
            spec.arg = TensorArgument(name=result.name)
    call = program.module_call_graph[0].signature
    assert call is not None
    call.out_spec = pytree.tree_structure((0,) * (len(results) - first))
    for node in reversed(entered):
        if not node.users:
            _check_lost(node, paths, methods)
            program.graph.erase_node(node)
    readers = _readers(program, methods)
    _part_parameters(program, methods, readers)
    program.graph_module.recompile()
    return {node: paths[arguments(node)[2]] for node in program.graph.nodes if node.target is ENTER}


def _check_lost(node: Node, paths: Sequence[str], methods: Sequence[Method]) -> None:
    """Whether what a buffer holds when a method begins may go.

    Raises:
        ModelError: a method before has written it.
    """
    source, method, buffer = arguments(node)
    if source.op != "placeholder" and source.target is not ENTER:
        raise ModelError(
            f"the method `{methods[method].name}` writes `{paths[buffer]}` whole, and a method before it does, too",
            why="methods are proven in their order, in which the first value is lost",
            hint=f"name `{methods[method].name}` first",
        )


def _readers(program: ExportedProgram, methods: Sequence[Method]) -> dict[Node, int | None]:
    """The method that each node belongs to; None of what all may read.

    Raises:
        ModelError: a method reads what another one made and no buffer keeps.
    """
    owners = iter(number for number, each in enumerate(methods) for _ in range(each.inputs))
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    method: dict[Node, int | None] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            method[node] = next(owners) if kinds[node.name] is InputKind.USER_INPUT else None
        elif node.op == "call_function":
            method[node] = arguments(node)[1] if node.target is ENTER else _common(node, method, methods)
    return method


def _part_parameters(program: ExportedProgram, methods: Sequence[Method], readers: Mapping[Node, int | None]) -> None:
    """Let each method read parameters under its own name, in place: what stands beside them, a bias or the range of
    what they are multiplied with, is each method's own. PyTorch has made one of those that are one tensor."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    parameters = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.PARAMETER]
    own: dict[tuple[str, int], Node] = {}
    places = {spec.arg.name: program.state_dict[str(spec.target)].data_ptr() for spec in parameters}
    for spec in parameters:
        own.setdefault((str(spec.target).partition(".")[0], places[spec.arg.name]), nodes[spec.arg.name])
    for name, place in places.items():
        for user in list(nodes[name].users):
            if (number := readers.get(user)) is not None:
                user.replace_input_with(nodes[name], own[methods[number].name, place])


def _common(node: Node, method: Mapping[Node, int | None], methods: Sequence[Method]) -> int | None:
    """The method of what a node reads; None of what all methods may read."""
    found = {number for source in node.all_input_nodes if (number := method[source]) is not None}
    if len(found) > 1:
        first, *_, last = sorted(found)
        raise ModelError(
            f"the method `{methods[last].name}` reads what `{methods[first].name}` made",
            why="nothing but a registered buffer is kept from one to the other",
            hint="write it to a buffer: self.register_buffer(...), and self.kept.copy_(value)",
        )
    return next(iter(found), None)


def number_states(entered: Mapping[Node, str], states: Sequence[str]) -> None:
    """Let the ops by which methods read buffers tell the numbers of states, whose paths are `states`."""
    for node, path in entered.items():
        source, method, _ = arguments(node)
        node.args = (source, method, states.index(path))
