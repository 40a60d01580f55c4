"""The tree's language as text: statements that parse, and a listing of a whole program."""

from __future__ import annotations

import ast
import re

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.host import Pack
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.tree import (
    Access,
    Alloc,
    Assign,
    Buffer,
    For,
    If,
    Kind,
    Let,
    Op,
    Reduce,
    Seq,
    Statement,
    Value,
)

_SIGNS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_BUFFER = re.compile(r"(\w+): (\w+)\[([\d, ]*)\] in (\w+)(?: at (\d+))?")
_LOOP = re.compile(r"(for|unroll) (\w+) < (\d+)(?: by (\d+))?(, the last one early)?:")
_NOTHING: Statement = Seq(())
_IF = re.compile(r"if (.*):")
_LET = re.compile(r"let (\w+) < (\d+) be (.*):")


def parse_statement(text: str) -> Assign | Reduce:
    """`out[x, n] = sat8(S[x, n] + zero)` or `S[x] += a[x, k] * w[k]`; a name alone is a buffer of one element.

    Raises:
        ValueError: the text is no such statement.
    """
    (node,) = ast.parse(text).body
    if isinstance(node, ast.Assign):
        return Assign(_access(node.targets[0]), _value(node.value))
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return Reduce(_access(node.target), _value(node.value))
    raise ValueError(f"`{text}` is no statement of a program")


def parse_access(text: str) -> Access:
    """`S[x, n]` as an access.

    Raises:
        ValueError: the text is none.
    """
    return _access(_expression(text))


def _access(node: ast.expr) -> Access:
    if isinstance(node, ast.Name):
        return Access(node.id)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return Access(node.value.id, tuple(map(_affine, index)))
    raise ValueError(f"`{ast.unparse(node)}` is no element of a buffer")


def _affine(node: ast.expr) -> Affine:
    match node:
        case ast.Name():
            return Affine.of(node.id)
        case ast.Constant(value=int(number)):
            return Affine.of(number)
        case ast.UnaryOp(op=ast.USub()):
            return _affine(node.operand) * -1
        case ast.BinOp(op=ast.Add()):
            return _affine(node.left) + _affine(node.right)
        case ast.BinOp(op=ast.Sub()):
            return _affine(node.left) - _affine(node.right)
        case ast.BinOp(op=ast.Mult()):
            left, right = _affine(node.left), _affine(node.right)
            if not left.terms:
                return right * left.const
            if not right.terms:
                return left * right.const
    raise ValueError(f"`{ast.unparse(node)}` is no sum of loop variables with whole factors")


def _value(node: ast.expr) -> Value:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
        case ast.Call(func=ast.Name(id=name)):
            return Op(name, tuple(map(_value, node.args)))
        case ast.BinOp() if type(node.op) in _SIGNS:
            return Op(_SIGNS[type(node.op)], (_value(node.left), _value(node.right)))
    return _access(node)


def parse_program(text: str) -> Program:
    """The program behind a `listing` that has no instructions, and no steps of the host.

    A buffer inside lives to the end of the lines that are indented like it.

    Raises:
        ValueError: a line is none of a program.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    arguments = list[Buffer]()
    while lines and (found := _BUFFER.fullmatch(lines[0])) and found[4] in ("in", "out", "const"):
        arguments.append(_buffer(found))
        lines.pop(0)
    body = _body(lines, 0)
    if lines:
        raise ValueError(f"`{lines[0].strip()}` is indented as nothing before it")
    return Program(tuple(arguments), body)


def _buffer(found: re.Match[str]) -> Buffer:
    shape = tuple(int(extent) for extent in found[3].split(",") if extent.strip())
    return Buffer(found[1], found[2], shape, found[4], None if found[5] is None else int(found[5]))


def _body(lines: list[str], depth: int) -> Statement:
    """The statements that are indented to `depth`; their lines are taken away."""
    pad, found = "  " * depth, list[Statement]()
    while lines and lines[0].startswith(pad) and not lines[0].startswith(f"{pad} ") and lines[0] != f"{pad}else:":
        line = lines.pop(0).strip()
        if (buffer := _BUFFER.fullmatch(line)) is not None:
            found.append(Alloc(_buffer(buffer), _body(lines, depth)))
        elif (loop := _LOOP.fullmatch(line)) is not None:
            kind, var, extent, step, early = loop.groups()
            body = _body(lines, depth + 1)
            marked: Kind = "unroll" if kind == "unroll" else "each"
            found.append(For(var, int(extent), body, int(step or 1), bool(early), marked))
        elif (number := _LET.fullmatch(line)) is not None:
            body = _body(lines, depth + 1)
            found.append(Let(number[1], _value(_expression(number[3])), int(number[2]), body))
        elif (condition := _IF.fullmatch(line)) is not None:
            conditions = tuple(_affine(_expression(c.removesuffix(">= 0"))) for c in condition[1].split(" and "))
            then, otherwise = _body(lines, depth + 1), _NOTHING
            if lines and lines[0] == f"{pad}else:":
                lines.pop(0)
                otherwise = _body(lines, depth + 1)
            found.append(If(conditions, then, otherwise))
        else:
            found.append(parse_statement(line))
    return found[0] if len(found) == 1 else Seq(tuple(found))


def _expression(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def listing(program: Program) -> str:
    """A program for people: its arguments, what the host does to constants, its statements."""
    lines = [str(buffer) for buffer in program.arguments]
    for step in program.host:
        if isinstance(step, Pack):
            where = ", ".join(map(str, step.where))
            lines.append(f"host: {step.name}{list(step.shape)} = {step.source}{list(step.was)}[{where}]")
        else:
            lines.append(f"host: {step.name} = {step.rule}({', '.join(step.sources)})")
    return "\n".join([*lines, *_listed(program.body, 0), ""])


def _listed(statement: Statement, depth: int) -> list[str]:
    pad = "  " * depth
    match statement:
        case Seq():
            return [line for part in statement.body for line in _listed(part, depth)]
        case Alloc():
            return [f"{pad}{statement.buffer}", *_listed(statement.body, depth)]
        case If():
            conditions = " and ".join(f"{condition} >= 0" for condition in statement.conditions)
            then, otherwise = (_listed(s, depth + 1) for s in (statement.then, statement.otherwise))
            return [f"{pad}if {conditions}:", *then, *([f"{pad}else:", *otherwise] if otherwise else [])]
        case Let():
            head = f"{pad}let {statement.var} < {statement.extent} be {statement.value}:"
            return [head, *_listed(statement.body, depth + 1)]
        case For():
            by = f" by {statement.step}" if statement.step > 1 else ""
            early = ", the last one early" if statement.early else ""
            kind = "for" if statement.kind == "each" else statement.kind.replace("_", " ")
            ahead = f", {statement.ahead} ahead" if statement.ahead else ""
            return [
                f"{pad}{kind} {statement.var} < {statement.extent}{by}{early}{ahead}:",
                *_listed(statement.body, depth + 1),
            ]
    return [f"{pad}{statement}"]
