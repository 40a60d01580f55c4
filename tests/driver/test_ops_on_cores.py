"""A slice of the examples behind `tosaic ops` on cores without vectors; `benchmarks/op_rows.py` compiles them all."""

from __future__ import annotations

import pytest

from benchmarks.op_rows import faults

EXAMPLES = ("conv-stride-pads", "depthwise-multiplier", "softmax", "upsample-bilinear", "grid-sample")


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m0plus", "cortex-m33"])
def test_examples_are_exact(target):
    assert list(faults(EXAMPLES, target)) == []
