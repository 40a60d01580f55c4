"""The nodes of a graph of ONNX, executed one by one: by a rule, by ONNX's reference, or by others that define them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from tosaic.frontend.onnx_ops.registry import OnnxRule, rule_of
from tosaic.frontend.sizes import MOST_ELEMENTS
from tosaic.support.child import Bounds, in_child
from tosaic.support.errors import ModelError, reason

onnx: Any = import_module("onnx")
_reference: Any = import_module("onnx.reference")

_OWN_DOMAINS = ("", "ai.onnx")
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
_KEPT = {"DequantizeLinear"}  # a weight keeps its integers and scales
_MOST_ITERATIONS = 1024  # of a loop, each of which is compiled
_MOST_NODES = 1 << 14  # of a graph, those of a loop once for each iteration
_BOUNDS = Bounds(seconds=30, bytes=2 << 30)  # of a node that the reference computes
_OF_KNOWN = {"ConstantOfShape", "NonZero", "Range", "Unique"}  # operands decide on the shape of the result


@dataclass(frozen=True)
class Known:
    """A value that depends on no input, and the buffer that holds it, if one does."""

    array: np.ndarray
    buffer: Tensor | None = None


Value: TypeAlias = Tensor | Known | None
Values: TypeAlias = dict[str, Value]


class InputNotConstantError(ModelError):
    """What must be known when the model is compiled, a shape say, is an input."""

    def __init__(self, name: str, parameter: str) -> None:
        super().__init__(
            f"`{name}` decides what is compiled, and depends on an input",
            why=f"`{parameter}` must be constant",
            hint="make it an initializer of the graph",
        )
        self.name = name


@dataclass
class _Count:
    nodes: int = 0


@dataclass(frozen=True)
class Scope:
    """Where nodes are computed: the opsets that tell their meaning, and the functions that they may call.

    Args:
        attributes: of the function that is called; those of its nodes may refer to them.
        computed: how many nodes were, in all scopes of a graph.
    """

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], Any]
    attributes: Mapping[str, Any] | None = None
    computed: _Count = field(default_factory=_Count)

    def run(self, nodes: Iterable[Any], values: Values) -> Values:
        """The values after the nodes were computed in order."""
        for node in nodes:
            bind(values, node.output, self.results(node, values))
        return values

    def results(self, node: Any, values: Values) -> Sequence[Value]:
        """The results of a node.

        Raises:
            ModelError: it cannot be computed; the message names it.
        """
        where = f"{node.op_type} `{node.name or ', '.join(node.output)}`"
        try:
            return self._results(node, values)
        except InputNotConstantError:
            raise
        except ModelError as error:
            if error.where:
                raise
            raise ModelError(error.what, where=where, why=error.why, hint=error.hint) from None
        except Exception as error:
            raise ModelError("a node of the graph cannot be imported", where=where, why=reason(error)) from error

    def _results(self, node: Any, values: Values) -> Sequence[Value]:
        self.computed.nodes += 1
        if self.computed.nodes > _MOST_NODES:
            raise ModelError(
                f"the graph has more than {_MOST_NODES:,} nodes, those of a loop counted once for each iteration",
                hint="write loops with ops on whole tensors",
            )
        operands = [values[name] if name else None for name in node.input]
        attributes = self._attributes(node)
        own = node.domain in _OWN_DOMAINS
        if own and node.op_type == "CastLike":  # of the other operand the type counts alone
            kind = onnx.TypeProto.FromString(_type(operands[1])).tensor_type.elem_type
            to = onnx.helper.make_node("Cast", node.input[:1], node.output, node.name, to=kind)
            to.attribute.extend(node.attribute)
            return self._results(to, values)
        if own and node.op_type in _CONTROL:
            return _CONTROL[node.op_type](self, node, operands, attributes, values)
        if own and node.op_type in _RANDOM:
            raise ModelError("it draws random numbers", hint="export the model in evaluation mode")
        function = self.functions.get((node.domain, node.op_type))
        if function:
            return self._call(function, node, operands)
        rule = rule_of(node.op_type, self._opset(node), "" if own else node.domain)
        newest = rule is rule_of(node.op_type, onnx.defs.onnx_opset_version())
        known = all(one is None or isinstance(one, Known) for one in operands)
        if own and known and node.op_type not in _KEPT and newest:  # the reference may know the newest alone
            return self._evaluated(node, operands)
        if own and node.op_type in _OF_KNOWN:
            read = next(name for name, one in zip(node.input, operands, strict=True) if isinstance(one, Tensor))
            raise InputNotConstantError(read, node.op_type)
        if rule:
            return _apply(rule, node, operands, {name: _plain(one) for name, one in attributes.items()})
        function = self._function_of_schema(node, operands)
        if not function:
            raise ModelError(f"the op `{'.'.join(filter(None, (node.domain, node.op_type)))}` has no import")
        return self._call(function, node, operands)

    def _opset(self, node: Any) -> int:
        return self.opsets[next(domain for domain in (node.domain, *_OWN_DOMAINS) if domain in self.opsets)]

    def _attributes(self, node: Any) -> dict[str, Any]:
        """The attributes of a node; those that refer to one of the function's are that."""
        given, found = self.attributes or {}, dict[str, Any]()
        for one in node.attribute:
            if not one.ref_attr_name:
                found[one.name] = one
            elif one.ref_attr_name in given:
                found[one.name] = onnx.AttributeProto()
                found[one.name].CopyFrom(given[one.ref_attr_name])
                found[one.name].name = one.name
        return found

    def _complete(self, node: Any) -> Any:
        """A copy of a node whose attributes refer to none."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.attribute[:]
        copy.attribute.extend(self._attributes(node).values())
        return copy

    def _evaluated(self, node: Any, operands: Sequence[Value]) -> list[Value]:
        """What ONNX's reference makes of operands that are known."""
        alone = self._complete(node)
        opset = onnx.helper.make_opsetid("", self._opset(node))
        given = {name: one.array for name, one in zip(node.input, operands, strict=True) if isinstance(one, Known)}
        ports = [
            [onnx.helper.make_empty_tensor_value_info(name) for name in names if name] for names in (given, node.output)
        ]
        model = onnx.helper.make_model(onnx.helper.make_graph([alone], "known", *ports), opset_imports=[opset])
        try:
            results = iter(in_child(_reference_results, model.SerializeToString(), given, bounds=_BOUNDS))
        except (MemoryError, ChildProcessError):
            raise ModelError(f"its result needs more than {_BOUNDS.bytes >> 30} GiB") from None
        found = [next(results) if name else None for name in node.output]
        return [None if one is None else Known(one) for one in found]

    def _call(self, function: Any, node: Any, operands: Sequence[Value]) -> list[Value]:
        attributes = {one.name: one for one in function.attribute_proto} | self._attributes(node)
        opsets = {one.domain: one.version for one in function.opset_import}
        inside = replace(self, opsets=opsets, attributes=attributes)
        values: Values = dict.fromkeys(function.input)
        values |= dict(zip(function.input, operands, strict=False))
        inside.run(function.node, values)
        return [values.get(name) for name in function.output]  # what nothing asks for, a body may leave out

    def _function_of_schema(self, node: Any, operands: Sequence[Value]) -> Any:
        """The function that ONNX defines an op by; None where it defines it in words."""
        opset = self._opset(node)
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        except onnx.defs.SchemaError:
            return None
        if schema.has_function:
            version = max((one for one in schema.function_opset_versions if one <= opset), default=None)
            data = schema.get_function_with_opset_version(version) if version else None
        elif schema.has_context_dependent_function:
            version = max((one for one in schema.context_dependent_function_opset_versions if one <= opset), default=0)
            text, types = self._complete(node).SerializeToString(), [_type(one) for one in operands]
            data = schema.get_context_dependent_function_with_opset_version(version, text, types)
        else:
            data = None
        if not data:
            return None
        function = onnx.FunctionProto()
        function.ParseFromString(data)
        defaults = [one.default_value for one in schema.attributes.values() if one.default_value.type]
        named = {one.name for one in function.attribute_proto}
        function.attribute_proto.extend(one for one in defaults if one.name not in named)
        return function


def _reference_results(model: bytes, given: Mapping[str, np.ndarray]) -> list[np.ndarray | None]:
    """In the child: what ONNX's reference makes of a model's inputs.

    Raises:
        ModelError: it cannot compute them, or a result is no tensor, or larger than any microcontroller holds.
    """
    try:
        found = _reference.ReferenceEvaluator(onnx.load_from_string(model)).run(None, dict(given))
    except MemoryError:
        raise
    except Exception as error:
        raise ModelError("ONNX's reference cannot compute it", why=reason(error)) from None
    if any(isinstance(one, list) for one in found):
        raise ModelError("sequences of tensors have no meaning for a microcontroller")
    arrays = [None if one is None else np.asarray(one) for one in found]
    for array in arrays:
        if array is not None and array.size > MOST_ELEMENTS:
            raise ModelError(f"its result has {array.size:,} elements, and no more than {MOST_ELEMENTS:,} are taken")
    return arrays


def _if(scope: Scope, node: Any, operands: Sequence[Value], attributes: Mapping, values: Values) -> list[Value]:
    """One branch, or both where an input decides between them."""
    branches = [attributes[name].g for name in ("then_branch", "else_branch")]
    (condition,) = operands
    if isinstance(condition, Known):
        branches = [branches[0 if condition.array.item() else 1]]
    found = []
    for branch in branches:
        inside = scope.run(branch.node, {**values, **_initializers(branch)})
        found.append([inside[one.name] for one in branch.output])
    if len(found) == 1:
        return found[0]
    assert isinstance(condition, Tensor)
    pairs = [(to_tensor(one), to_tensor(other)) for one, other in zip(*found, strict=True)]
    if any(one.shape != other.shape for one, other in pairs):
        raise ModelError("its branches give tensors of other shapes, and an input decides between them")
    return [torch.where(condition.reshape(()), one, other) for one, other in pairs]


def _loop(scope: Scope, node: Any, operands: Sequence[Value], attributes: Mapping, values: Values) -> list[Value]:
    """All iterations one behind the other; how many there are must be known."""
    body = attributes["body"].g
    count, going, *carried = operands
    most = _known(count, node.input[0], "M").item() if count is not None else None
    rows = list[list[Value]]()
    iteration = 0
    while (most is None or iteration < most) and (going is None or _known(going, node.input[1], "cond").item()):
        given = [Known(np.array(iteration, np.int64)), going or Known(np.array(True)), *carried]
        names = [one.name for one in body.input]
        inside = {**values, **_initializers(body), **dict(zip(names, given, strict=True))}
        scope.run(body.node, inside)
        going, *found = [inside[one.name] for one in body.output]
        carried, row = found[: len(carried)], found[len(carried) :]
        rows.append(row)
        iteration += 1
        if iteration > _MOST_ITERATIONS:
            raise ModelError(
                f"it has more than {_MOST_ITERATIONS} iterations", hint="write it with ops on whole tensors"
            )
    return [*carried, *(torch.stack([to_tensor(one) for one in column]) for column in zip(*rows, strict=True))]


def _apply(rule: OnnxRule, node: Any, operands: Sequence[Value], attributes: dict[str, Any]) -> list[Value]:
    rank = max((one.ndim for one in operands if isinstance(one, Tensor)), default=0)
    given = list[Any]()
    for number, operand in enumerate(operands):
        name = rule.parameter(number)
        if operand is None:
            given.append(None)
        elif name in rule.constant:
            _known(operand, node.input[number], name)
            given.append(to_tensor(operand))
        elif name in rule.lists:
            given.append(_known(operand, node.input[number], name).reshape(-1).tolist())
        elif name in rule.numbers:
            given.append(_known(operand, node.input[number], name).item())
        elif name in rule.arrays:
            given.append(_known(operand, node.input[number], name))
        elif (
            rule.with_numbers and isinstance(operand, Known) and operand.array.size == 1 and operand.array.ndim <= rank
        ):
            given.append(operand.array.item())
        else:
            given.append(to_tensor(operand))
    unknown = [name for name in attributes if name not in rule.parameters]
    if unknown and not any(one.kind is one.VAR_KEYWORD for one in rule.parameters.values()):
        raise ModelError(f"its attribute `{unknown[0]}` is not known", hint="onnx.version_converter makes it newer")
    if "results" in rule.parameters:
        attributes["results"] = len(node.output)
    found = rule.function(*given, **attributes)
    return [
        one if isinstance(one, Tensor) else Known(one)
        for one in (found if isinstance(found, tuple | list) else [found])
    ]


def _known(value: Value, name: str, parameter: str) -> np.ndarray:
    if not isinstance(value, Known):
        raise InputNotConstantError(name, parameter)
    return value.array


def to_tensor(value: Value) -> Tensor:
    if isinstance(value, Known):
        return tensor_of(value.array) if value.buffer is None else value.buffer
    assert value is not None
    return value


def tensor_of(array: np.ndarray) -> Tensor:
    """An array of ONNX as a tensor.

    Raises:
        ModelError: tosaic computes with no such elements.
    """
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    try:
        return torch.from_numpy(np.array(array, order="C"))
    except TypeError:
        raise ModelError(f"a tensor has elements of type {array.dtype}, which no target computes with") from None


def _plain(attribute: Any) -> Any:
    """An attribute as a number, a text, a list of these, or an array."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return (
        [one.decode() if isinstance(one, bytes) else one for one in value]
        if isinstance(value, Iterable) and not isinstance(value, str)
        else value
    )


def _type(value: Value) -> bytes:
    """The type of an operand, as ONNX writes it; empty where there is none."""
    if value is None:
        return onnx.TypeProto().SerializeToString()
    dtype = value.array.dtype if isinstance(value, Known) else np.dtype(str(value.dtype).removeprefix("torch."))
    shape = value.array.shape if isinstance(value, Known) else value.shape
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(dtype), shape).SerializeToString()


def bind(values: Values, names: Sequence[str], results: Sequence[Value]) -> None:
    values |= {name: one for name, one in zip(names, results, strict=False) if name}


def _initializers(graph: Any) -> Values:
    return {one.name: Known(onnx.numpy_helper.to_array(one)) for one in graph.initializer}


_CONTROL: dict[str, Callable[..., Sequence[Value]]] = {"If": _if, "Loop": _loop}
