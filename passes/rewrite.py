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


def rewrite(module: ir.Module, patterns: Iterable[Pattern], generations: int = _SWEEPS) -> None:
    """Apply `patterns` to every function until none matches, and remove what becomes dead.

    Patterns are tried in the order given. The driver holds ops by position in a snapshot of the block and marks what
    it erases, so that an erased op is never touched.

    Args:
        generations: how often ops are rewritten that stand for others: what is made of an op of the function is of the
            first generation. Where patterns choose by costs, forms may turn into each other without end.

    Raises:
        PassError: no fixpoint is reached.
    """
    by_name: dict[str, list[Pattern]] = {}
    for one in patterns:
        for name in one.names:
            by_name.setdefault(name, []).append(one)
    for function in functions(module).values():
        for block in function.regions[0].blocks:
            _fixpoint(block, by_name, generations)


def _fixpoint(block: ir.Block, by_name: dict[str, list[Pattern]], generations: int) -> None:
    matched, sweep = "", _Sweep(block, [0] * len(block.operations))
    for _ in range(_SWEEPS):
        matched = sweep.run(by_name, generations)
        if not matched:
            return
        sweep = _Sweep(block, sweep.generations_of(block))
    raise PassError(f"no fixpoint after {_SWEEPS} sweeps", why=f"the last pattern that matched is `{matched}`")


class _Sweep:
    """One pass over a snapshot of a block, whose ops are of these generations."""

    def __init__(self, block: ir.Block, generations: Sequence[int]) -> None:
        self.ops = [op.operation for op in block.operations]
        self.alive = [True] * len(self.ops)
        self.generations = generations

    def run(self, by_name: dict[str, list[Pattern]], generations: int) -> str:
        """Rewrite each op at most once and erase what is dead; the last pattern that matched, empty when none did."""
        matched = ""
        for index, op in enumerate(self.ops):
            if not self.alive[index] or self.generations[index] >= generations:
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

    def generations_of(self, block: ir.Block) -> list[int]:
        """Those of the ops that the block has now. A new op comes behind those that are gone from where it stands."""
        found, index = list[int](), 0
        for op in block.operations:
            gone = list[int]()
            while index < len(self.ops) and not self.alive[index]:
                gone.append(self.generations[index])
                index += 1
            if index < len(self.ops) and op.operation == self.ops[index]:
                found.append(self.generations[index])
                index += 1
            else:
                found.append(max(gone) + 1 if gone else max(found[-1:], default=0))
        return found

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
