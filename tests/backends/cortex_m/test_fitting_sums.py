"""Scaled sums that fit 16 bits on the M55: exact, with bytes alone that saturate, and only where the host knows it."""

from __future__ import annotations

import itertools

import mve_layers
import numpy as np
import pytest
from board import M55, Case, run_cases
from program.trees import PIXELS

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.kernels.matmul import Matmul
from tosaic.backends.cortex_m.program.derived import DERIVED
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.interpret import interpreted
from tosaic.backends.cortex_m.program.kernel import Built, of_schedule
from tosaic.backends.cortex_m.program.print_c import Printer
from tosaic.backends.cortex_m.program.schedule import parse_steps, replayed
from tosaic.backends.cortex_m.program.text import parse_program
from tosaic.backends.cortex_m.program.tree import RefusedError

FAMILY, PRODUCT = Conv2d(), Matmul()
SIZES = [(13, 64, 32), (12, 32, 32), (9, 40, 20), (5, 33, 35), (17, 16, 12), (4, 3, 7), (9, 8, 16, (3, 3))]
OPTIONS = [{}, {"table": True}, {"clamp": (-100, 90)}, {"shifts": (31, 31)}, {"shifts": (32, 32)}]
PRODUCTS = [(9, 20, 13), (8, 16, 12), (3, 40, 20), (33, 32, 16), (5, 64, 36)]


def layer(count: int, depth: int, channels: int, kernel: tuple[int, int] = (1, 1), **options) -> mve_layers.Layer:
    """A convolution of rows of pixels whose shifts can all be 31."""
    rng = np.random.default_rng(count)
    shape = (1, kernel[0], count, depth)
    return mve_layers.conv2d(rng, shape, channels, kernel, unit=1 << 23, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_results_are_exact_whether_sums_fit_or_not(tmp_path, sizes, options):
    what = layer(*sizes, **options)
    variants = what.space(FAMILY).variants
    cases = [what.case(FAMILY, schedule) for v in variants for schedule in itertools.islice(v.schedules(), 3)]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(("options", "fits"), [(OPTIONS[0], True), (OPTIONS[2], False), (OPTIONS[4], False)])
@pytest.mark.parametrize(("variant", "channels"), [("pixels", 32), ("pixels", 12), ("weight_stationary", 12)])
def test_no_word_saturates_where_sums_fit(variant, channels, options, fits):
    what = layer(13, 32, channels, **options)
    found = next(v for v in what.space(FAMILY).variants if v.name == variant).first()
    assert found is not None
    kernel = of_schedule(FAMILY.vector_sketches(what.workload(FAMILY))[variant], found, CORTEX_M55)
    saturated = any(name in kernel.text for name in ("vqmovnb.s32", "vqshl.s32", "vmax.s32"))
    assert saturated != fits
    low, high = (kernel.text.count(f"vmovn{half}.i32") for half in "bt")
    assert not fits or low <= high / 2  # low halves lie where the words were, but for those that an iteration leaves


@pytest.mark.parametrize("options", [{}, {"table": True}, {"per_column": True}, {"clamp": (-90, 80)}], ids=str)
@pytest.mark.parametrize("shift", [31, 36, 40])
def test_products_of_activations_are_exact_whether_they_fit_or_not(tmp_path, options, shift):
    cases = []
    for number, sizes in enumerate(PRODUCTS):
        scale = None if "per_column" in options else ((1 << 30) + (1 << 7), shift)
        for transposed in (False, True):
            rng = np.random.default_rng(number)
            what = mve_layers.matmul(rng, 2, *sizes, transposed=transposed, scale=scale, **options)
            cases += [what.case(PRODUCT, v.first()) for v in what.space(PRODUCT).variants]
    for outcome in run_cases(cases, tmp_path):
        assert outcome.exact, outcome


@pytest.mark.parametrize(("shift", "fits"), [(36, False), (38, True)])
@pytest.mark.parametrize("variant", ["rows", "in_place", "column_stationary"])
def test_no_word_saturates_where_products_of_activations_fit(variant, shift, fits):
    rng = np.random.default_rng(0)
    what = mve_layers.matmul(rng, 2, 4, 32, 32, transposed=True, scale=((1 << 30) + (1 << 7), shift))
    found = next(v for v in what.space(PRODUCT).variants if v.name == variant).first()
    assert found is not None
    kernel = of_schedule(PRODUCT.vector_sketches(what.workload(PRODUCT))[variant], found, CORTEX_M55)
    assert any(name in kernel.text for name in ("vqmovnb.s32", "vqshl.s32")) != fits


def ends(weights: list[int], bias: int, multiplier: int, shift: int, *zero: int) -> bool:
    """Whether the host finds that a sum fits."""
    arrays = [np.array(each, np.int64) for each in ([weights], [bias], [multiplier], [shift], *zero)]
    return DERIVED["fits"](*arrays) is not None


def test_the_host_knows_how_large_scaled_sums_get():
    assert ends([1, -1], 0, 1 << 30, 30)  # -255 to 255
    assert ends([0], 32767, 1 << 30, 30)
    assert not ends([0], 32768, 1 << 30, 30)
    assert ends([0], -32768, 1 << 30, 30)
    assert not ends([0], -32768, 1 << 30, 30, -1)
    assert not ends([0], 32767, 1 << 30, 30, 1)
    assert ends([127], 32767 - 127 * 127, 1 << 30, 30)
    assert not ends([-128], 32768 - 128 * 128, 1 << 30, 30)
    assert not ends([0], 65535, 1 << 30, 31)  # 32767.5 is rounded up
    assert ends([0], 65534, 1 << 30, 31)


def test_the_host_knows_how_large_sums_of_a_range_get():
    def fit(multiplier: int, shift: int, *others: int) -> bool:
        return DERIVED["range_fits"](*(np.array(each, np.int64) for each in (multiplier, shift, *others))) is not None

    assert fit(1 << 30, 30, -32768, 32767)
    assert not fit(1 << 30, 30, -32769, 32767)
    assert not fit(1 << 30, 30, -32768, 32768)
    assert not fit(1 << 30, 30, 1, -32768, 32767)
    assert not fit(1 << 30, 30, -1, -32768, 32767)
    assert fit(1 << 30, 31, 3, -4, 65528)
    assert not fit(1 << 30, 31, 3, -4, 65529)  # 32764.5 is rounded up
    assert not fit(1, 62, -1, 1 << 31)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("+ zero)", "+ zero)", ""),
        ("    for k < 16:\n", "    for t < 2:\n      for k < 16:\n  ", "S is no bias and products"),
        ("a: i8[4, 16]", "a: i16[4, 16]", "S is no bias and products"),
        ("w[sn, k]", "w[k - k, k]", "S is no bias and products"),
        ("multiplier[n], shift[n]", "multiplier[x], shift[x]", "S is no bias and products"),
        ("S[sx, sn] = bias[sn]", "S[sx, sn] = a[sx, sn]", "S is no bias and products"),
        ("bias: i32[4] in const", "bias: i32[4] in in", "no constants of a channel"),
        ("scale32(S[x, n]", "scale32(S[x, n] + S[n, x]", ""),
        ("scale32(S[x, n], multiplier[n]", "scale32(S[x, n] - S[n, x], multiplier[x]", "no constants of a channel"),
        ("sat8(scale32", "sat8(scale32(S[n, x], multiplier[n], shift[n]) + scale32", "no one scaled sum"),
    ],
)
def test_other_sums_are_refused(old, new, why):
    steps = parse_steps("rewrite(out, halves)\nfit(out)")
    program = parse_program(PIXELS.replace(old, new, 1))
    if not why:
        assert "low_half" in str(replayed(program, steps).body)
        return
    with pytest.raises(RefusedError, match="is not legal") as error:
        replayed(program, steps)
    assert why in str(error.value.why)


@pytest.mark.parametrize(
    ("old", "new", "bounds"),
    [
        ("bias[sn]", "0", (-2 * 16 * 128 * 127, 2 * 16 * 128 * 128)),
        ("a: i8[4, 16]", "a: i16[4, 16]", (-1 << 32, (1 << 32) - 2)),
        ("bias[sn]", "bias[sn] * bias[sn]", (-1 << 32, (1 << 32) - 2)),
    ],
)
def test_types_tell_how_large_several_sums_get(old, new, bounds):
    steps = parse_steps("rewrite(out, halves)\nfit(out)")
    text = PIXELS.replace("scale32(S[x, n]", "scale32(S[x, n] + S[x, n]").replace(old, new)
    check = Derive("fits", "range_fits", ("multiplier", "shift", "zero"), ((4,), (4,), ()), bounds)
    assert replayed(parse_program(text), steps).host == (check,)


@pytest.mark.parametrize("twice", [False, True])
def test_low_halves_lie_where_words_were_that_are_read_no_more(tmp_path, twice):
    text = """
a: i32[4, 2, 4] in in
out: i16[4, 8] in out
for y < 4:
  v: i32[2, 4] in q
  for i < 2:
    for l < 4:
      v[i, l] = a[y, i, l]
  E: i16[8] in q
  for m < 4:
    E[2 * m] = low_half(v[0, m])
  for n < 4:
    E[2 * n + 1] = low_half(v[ODD, n])
  for j < 8:
    out[y, j] = E[j]
""".replace("ODD", "0" if twice else "1")
    program = replayed(parse_program(text), parse_steps("select(y, mve)\nhardware_loop(y)"))
    printed = Printer(program).text
    assert ("vmovnb.i32" in printed) == twice
    a = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, (4, 2, 4)).astype(np.int32)
    source = Built(program, (), printed, 0, 0, 0).source("halves", {})
    (outcome,) = run_cases([Case(source, [a], list(interpreted(program, {"a": a}).values()))], tmp_path, bench=M55)
    assert outcome.exact, outcome
