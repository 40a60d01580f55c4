"""The JSON of a `.pt2`: a graph whose names are words, whose calls are ops, and whose sizes are sums and products."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from tosaic.frontend.decompositions.registry import decomposition_of
from tosaic.frontend.lowerings.registry import registered

_NAME = re.compile(r"\w*", re.ASCII)  # torch writes it into Python source
_PATH = re.compile(r"(?!(.*\.)?__)[\w.+-]*", re.ASCII)
_PATHS = {"parameter_name", "buffer_name", "tensor_constant_name", "fqn", "torch_version", "config", "path_name"}
_SYMBOL = re.compile(r"[a-z]+\d{1,6}", re.ASCII)  # torch counts up to the number
# Sizes that are symbols, and what is computed from them: they are given numbers, or refused by the input that has them.
_OF_SIZES = {"Add", "CeilDiv", "CleanDiv", "Equality", "FloorDiv", "GreaterThan", "Integer", "LessThan", "Max", "Min",
             "Mod", "Mul", "PythonMod", "StrictGreaterThan", "StrictLessThan", "Symbol", "Unequality"}  # fmt: skip
_LONGEST, _LARGEST = 10_000, 10**18
_EXPRESSION = (ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Constant, ast.UnaryOp, ast.USub, ast.Load)
_ON_SIZES = {"math.trunc", "torch.sym_float", "torch.sym_int", "torch.sym_max", "torch.sym_min", "torch.sym_not",
             *(f"_operator.{name}" for name in ("add", "and_", "eq", "floordiv", "ge", "gt", "le", "lt", "mod", "mul",
                                                "ne", "neg", "or_", "sub", "truediv"))}  # fmt: skip
_SIZES = {"as_int", "as_float", "as_bool", "as_sym_int", "as_sym_float", "as_sym_bool"}
_OP = re.compile(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)", re.ASCII)
_TRUSTING = re.compile("sparse|nested")
_NO_OPS = {"from_file", "save"}  # of ATen: they name files
_ALLOWED = ("_operator.getitem", *(f"torch.ops.higher_order.{name}" for name in (
    "cond", "map_impl", "scan", "while_loop", "wrap_with_set_grad_enabled")))  # fmt: skip
_PYTREES = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")
_QUOTED = ("as_string", "as_strings")
_OF_METADATA = {"target", "module_call_graph"}  # fields beside it of a node, and of a module
_CALLED = ("target", "as_operator")
_FLOATS = ("as_float", "as_floats")  # of which JSON has those that are no numbers as texts


class FileRefusedError(Exception):
    """Why a file is not opened."""


def checked_graph(program: dict[str, Any]) -> dict[str, Any]:
    """The program without guards, which are Python code, and which static shapes do not need.

    Raises:
        FileRefusedError: torch could evaluate, call or import something of it.
    """
    program["guards_code"] = []
    for symbol in program["range_constraints"]:
        if not _SYMBOL.fullmatch(symbol):
            raise FileRefusedError(f"{symbol[:80]!r} is no symbol")
    check_words(program)
    for key, value in _leaves(program, ""):
        if key in ("in_spec", "out_spec"):
            _check_pytree(json.loads(value)[1], of_call=key == "in_spec")
        elif key in _CALLED and not (value in _ALLOWED or value in _ON_SIZES or _is_op(value)):
            raise FileRefusedError(f"it calls `{value}`, which is no op")
    _check_nodes(program)
    return program


def _is_op(name: str) -> bool:
    """Whether `torch.ops.NAMESPACE.OP.OVERLOAD` is an op, and no other attribute of Python's objects.

    ATen's private ops may trust their arguments: only those are let in that are lowered or taken apart.
    """
    found = _OP.fullmatch(name)
    if not found or found[2] in _NO_OPS or found[1] not in _namespaces():
        return False
    packet = getattr(getattr(torch.ops, found[1]), found[2], None)
    op = getattr(packet, found[3], None) if isinstance(packet, OpOverloadPacket) else None
    if not isinstance(op, OpOverload):
        return False
    if not found[2].startswith("_") or found[2].startswith(("__", "_assert_")):
        return True
    known = torch.Tag.core in op.tags or op in registered() or decomposition_of(op) is not None
    return known and not _TRUSTING.search(found[2])


def _namespaces() -> set[str]:
    return {
        "aten",
        "prims",
        "quantized_decomposed",
        *(target.namespace for target in registered() if hasattr(target, "namespace")),
    }


def _check_nodes(value: object) -> None:
    """No node has an object, and what computes sizes takes sizes: a text times a number would fill the memory."""
    if isinstance(value, dict):
        if "as_custom_obj" in value or value.get("custom_obj_values"):
            raise FileRefusedError("it holds an object, and no tensor")
        target = value.get("target")
        given = value["inputs"] if isinstance(target, str) and target in _ON_SIZES else ()
        if any(not _SIZES.issuperset(one["arg"]) for one in given):
            raise FileRefusedError(f"`{target}` computes with something else than sizes")
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        _check_nodes(item)


def check_words(document: object) -> None:
    """Refuse texts that are no names, paths of parameters or sizes.

    Raises:
        FileRefusedError: names the text.
    """
    for key, value in _leaves(document, ""):
        if key == "expr_str":
            _check_expression(value)
        elif key in _FLOATS and value == "-Infinity":
            continue
        elif key not in ("in_spec", "out_spec", *_CALLED) and not (_PATH if key in _PATHS else _NAME).fullmatch(value):
            raise FileRefusedError(f"{value[:80]!r} is no name")


def _check_expression(text: str) -> None:
    """SymPy evaluates it as Python: calls of known functions on numbers, words and each other."""
    nodes = ast.walk(ast.parse(text, mode="eval")) if len(text) <= _LONGEST else ()
    if not nodes or not all(isinstance(node, _EXPRESSION) and _is_of_sizes(node) for node in nodes):
        raise FileRefusedError(f"{text[:80]!r} is no size")


def _is_of_sizes(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name)
    if isinstance(node, ast.Name):
        return node.id in _OF_SIZES or bool(_SYMBOL.fullmatch(node.id))
    if not isinstance(node, ast.Constant):
        return True
    value = node.value
    return (isinstance(value, int) and value < _LARGEST) or (isinstance(value, str) and bool(_NAME.fullmatch(value)))


def _leaves(value: object, key: str) -> Iterator[tuple[str, str]]:
    """Every text and key with the key that it stands under, but for texts that torch keeps as such, or quotes.

    Any of the names that the schema gives to fields may be that of a tensor, too.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            yield key if key == "config" else "", name
            if not ((name in _QUOTED and _is_text(item)) or (name == "metadata" and _is_metadata(item, value))):
                yield from _leaves(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    elif isinstance(value, str):
        yield key, value


def _is_text(value: object) -> bool:
    return all(isinstance(item, str) for item in (value if isinstance(value, list) else [value]))


def _is_metadata(value: object, owner: dict[str, Any]) -> bool:
    return bool(_OF_METADATA & set(owner)) and isinstance(value, dict) and _is_text(list(value.values()))


def _check_pytree(spec: dict[str, Any], of_call: bool) -> None:
    """A spec of plain containers: the context of another type may name a module to import.

    Args:
        of_call: whether it holds the arguments of a call, positions and keywords; torch writes the keywords as code.
    """
    if spec["type"] not in _PYTREES:
        raise FileRefusedError(f"its inputs or outputs are in a `{spec['type']}`, and no tuple, list or dict")
    keys = json.loads(spec["context"] or "null") or []
    if not all(isinstance(key, str) and _PATH.fullmatch(key) for key in keys):
        raise FileRefusedError(f"the keys {spec['context']} are no names")
    for number, child in enumerate(spec["children_spec"]):
        _check_pytree(child, of_call=False)
        if of_call and number and not all(map(_NAME.fullmatch, json.loads(child["context"] or "null") or [])):
            raise FileRefusedError(f"the keywords {child['context']} are no names")
