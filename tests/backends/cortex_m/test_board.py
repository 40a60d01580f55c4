"""The board that judges the kernels sees what it must: wrong bytes, and reads and writes out of bounds."""

from __future__ import annotations

import numpy as np
import pytest
from board import Case, run_cases

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.support.errors import SimulatorError

_IMAGE = np.arange(16, dtype=np.int8)


def _case(body: str) -> Case:
    text = (
        "void probe(const signed char *in, signed char *out, const void *params, signed char *scratch)\n"
        f"{{ for (int i = 0; i < 16; i++) out[i] = in[i]; {body} }}\n"
    )
    return Case(KernelSource("probe", "c", text, scratch_bytes=16), [_IMAGE], [_IMAGE])


def test_a_faithful_copy_is_exact(tmp_path):
    (outcome,) = run_cases([_case("scratch[15] = 1;")], tmp_path)
    assert outcome.exact


@pytest.mark.parametrize(
    "body, wrong, inside", [("out[3] ^= 1;", 1, True), ("out[16] = 0;", 0, False), ("scratch[16] = 0;", 0, False)]
)
def test_wrong_bytes_and_stores_out_of_bounds_are_seen(tmp_path, body, wrong, inside):
    (outcome,) = run_cases([_case(body)], tmp_path)
    assert (outcome.wrong, outcome.inside, outcome.exact) == (wrong, inside, False)


def test_a_read_past_the_input_is_a_fault(tmp_path):
    with pytest.raises(SimulatorError, match="faulted"):
        run_cases([_case("scratch[0] = *(volatile const signed char *)(in + 16);")], tmp_path)
