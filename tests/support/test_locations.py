"""What a location tells a user."""

from __future__ import annotations

import pytest

from tosaic.frontend.origin import Origin
from tosaic.support.locations import UNKNOWN, describe, module_of
from tosaic.support.mlir import context, ir


@pytest.mark.parametrize(
    "origin, text",
    [
        (Origin("/x/net.py", 7, "a.0", "aten.add"), "net.py:7 aten.add"),
        (Origin(UNKNOWN, 0, "", "aten.add"), "aten.add"),
    ],
)
def test_the_line_and_the_op(origin, text):
    with context():
        location = origin.location()
    assert (describe(location), module_of(location)) == (text, origin.module)


def test_a_location_without_an_op():
    assert describe(ir.Location.unknown(context())) == module_of(ir.Location.unknown(context())) == ""
