"""MLIR from outside, which may crash or exhaust what reads it: a child does so first, bounded in memory and time."""

from __future__ import annotations

import re

from tosaic.support.child import Bounds, in_child
from tosaic.support.errors import PassError
from tosaic.support.mlir import functions, ir, parse

BOUNDS = Bounds(seconds=120, bytes=2 << 30)
_DEPTH = 256
_BRACKET = re.compile(r"[\[\]{}()<>]")


def read_mlir(source: bytes) -> ir.Module:
    """Parse MLIR from outside, text or bytecode.

    Raises:
        PassError: as `parse_checked`, or to parse it takes more than the bounds.
    """
    try:
        in_child(_check, source, bounds=BOUNDS)
    except TimeoutError as error:
        raise PassError("this is not valid MLIR", why=str(error)) from None
    except (ChildProcessError, MemoryError):
        why = f"what reads it crashed, or needed more than {BOUNDS.bytes >> 30} GiB"
        raise PassError("this is not valid MLIR", why=why) from None
    return parse(source)


def _check(source: bytes) -> None:
    parse_checked(source)


def parse_checked(source: bytes) -> ir.Module:
    """Parse MLIR from outside, in a process that may crash.

    Raises:
        PassError: it does not parse or verify; a name in it is not UTF-8, so that neither it nor what MLIR says of it
            can be read; or it is nested too deep.
    """
    try:
        module = parse(source)
        functions(module)
    except RuntimeError:
        raise PassError("this is not valid MLIR", why="it is damaged: a name in it is not UTF-8") from None
    check_depth(module)
    return module


def check_depth(module: ir.Module) -> None:
    """Raise PassError where brackets stand in brackets so deep that what reads the module anew could overflow its
    stack."""
    depth = 0
    for found in _BRACKET.finditer(module.operation.get_asm(large_elements_limit=8).replace("->", "")):
        depth += 1 if found[0] in "[{(<" else -1
        if depth > _DEPTH:
            raise PassError(f"it is nested more than {_DEPTH} levels deep")
