"""A small greedy pattern driver.

A pattern is a function of one op that returns the values to replace it with, or None. It runs with the insertion point
before the op and with the op's location. So what it builds belongs to the user's line of the op replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from tosaic.support.errors import PassError
from tosaic.support.mlir import functions, ir
from tosaic.support.values import users

Replacement: TypeAlias = "ir.Value | Sequence[ir.Value] | None"
Rule: TypeAlias = Callable[[ir.Operation], Replacement]

_SWEEPS = 200


class Pattern:
    """A rule together with the op names it applies to."""

    def __init__(self, names: tuple[str, ...], rule: Rule) -> None:
        self.names, self.rule = names, rule

    def __call__(self, op: ir.Operation) -> Replacement:
        return self.rule(op)


def pattern(*names: str) -> Callable[[Rule], Pattern]:
    """Decorator: the function rewrites ops of these names."""
    return lambda rule: Pattern(names, rule)


def rewrite(module: ir.Module, patterns: Iterable[Pattern]) -> None:
    """Apply `patterns` to every function until none matches, and remove what becomes dead.

    Patterns are tried in the order given. The driver holds ops by position in a snapshot of the block and marks what
    it erases, so that an erased op is never touched.

    Raises:
        PassError: no fixpoint is reached.
    """
    by_name: dict[str, list[Pattern]] = {}
    for one in patterns:
        for name in one.names:
            by_name.setdefault(name, []).append(one)
    for function in functions(module).values():
        for block in function.regions[0].blocks:
            _fixpoint(block, by_name)


def _fixpoint(block: ir.Block, by_name: dict[str, list[Pattern]]) -> None:
    matched = ""
    for _ in range(_SWEEPS):
        matched = _Sweep(block).run(by_name)
        if not matched:
            return
    raise PassError(f"no fixpoint after {_SWEEPS} sweeps", why=f"the last pattern that matched is `{matched}`")


class _Sweep:
    """One pass over a snapshot of a block."""

    def __init__(self, block: ir.Block) -> None:
        self.ops = [op.operation for op in block.operations]
        self.alive = [True] * len(self.ops)

    def run(self, by_name: dict[str, list[Pattern]]) -> str:
        """Rewrite each op at most once and erase what is dead; the last pattern that matched, empty when none did."""
        matched = ""
        for index, op in enumerate(self.ops):
            if not self.alive[index]:
                continue
            for one in by_name.get(op.name, ()):
                with ir.InsertionPoint(op), op.location:
                    values = one(op)
                if values is None:
                    continue
                matched = one.rule.__name__
                self._replace(index, [values] if isinstance(values, ir.Value) else list(values))
                break
        for index in reversed(range(len(self.ops))):
            if self.alive[index] and _is_dead(self.ops[index]):
                self._erase(index)
        return matched

    def _replace(self, index: int, values: list[ir.Value]) -> None:
        op = self.ops[index]
        if len(values) != len(op.results):
            raise PassError(f"a pattern gave {len(values)} values for the {len(op.results)} results of {op.name}")
        for result, value in zip(list(op.results), values, strict=True):
            result.replace_all_uses_with(value)
        self._erase(index)

    def _erase(self, index: int) -> None:
        self.alive[index] = False
        self.ops[index].erase()


def _is_dead(op: ir.Operation) -> bool:
    """Whether `op` computes values that nobody uses."""
    if not (op.name.startswith(("tosa.", "quant.")) or op.name == "func.call"):
        return False
    return len(op.results) > 0 and not any(users(result) for result in op.results)
