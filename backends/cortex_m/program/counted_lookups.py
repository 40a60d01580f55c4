"""Lookups of a pointwise function whose index counts from 0, as lanes count without a sign."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce

import numpy as np

from tosaic.backends.cortex_m.program.pointwise import Elementwise
from tosaic.backends.cortex_m.program.values import Value, add, minimum, multiply
from tosaic.backends.cortex_m.program.values import number as integer


def counted(what: Elementwise) -> Elementwise:
    """The function whose lookups in tables of halves count from 0, as lanes count them without a sign."""
    users = Counter(id(value.data) for value in what.values if value.op == "lookup")
    new, counts = dict[Value, Value](), dict[Value, Value]()
    for value in what.values:
        operands = tuple(new[operand] for operand in value.operands)
        if value.op == "lookup":
            (segment,) = operands
            index = counts.setdefault(segment, _moved(segment, -segment.low))
            new[value] = _from_zero(value, segment, index, alone=users[id(value.data)] == 1)
        else:
            new[value] = value if operands == value.operands else replace(value, operands=operands)
    return replace(what, result=new[what.result])


def _moved(total: Value, amount: int) -> Value:
    """A value and a number, which what rows add of a sum takes in."""
    if total.op == "narrow" and (within := total.operands[0]).bits <= total.numbers[0]:
        return _moved(within, amount)
    if total.op != "sum":
        return add(total, integer(amount))
    *factors, constant = total.numbers
    terms = [multiply(term, integer(factor)) for term, factor in zip(total.operands, factors, strict=True)]
    return reduce(add, terms, integer(constant + amount))


def _from_zero(lookup: Value, segment: Value, index: Value, alone: bool) -> Value:
    """A lookup by the index of a segment, which has no sign. Of a table that no other one reads, entries that are alike
    at its end are one where these are many."""
    (first,), entries = lookup.numbers, lookup.data
    assert entries is not None
    begin = first + segment.low
    read = entries[begin : first + segment.high + 1]
    last = int(np.flatnonzero(np.append(True, read[:-1] != read[-1]))[-1])
    if not alone or 4 * last > 3 * len(read):
        return replace(lookup, operands=(index,), numbers=(begin,))
    return replace(lookup, operands=(minimum(index, integer(last)),), numbers=(0,), data=read[: last + 1])
