"""The range an observer chooses loses less than the whole range, and is the whole range where nothing is to gain."""

from __future__ import annotations

import math

import pytest
import torch

from tosaic.frontend.observer import RangeObserver


def observer(scheme=torch.per_tensor_affine, low=-128, high=127, dtype=torch.int8, **options) -> RangeObserver:
    return RangeObserver(dtype, low, high, scheme, **options)


def error(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> float:
    rounded = torch.fake_quantize_per_tensor_affine(x, scale.reshape(()), zero_point.reshape(()), -128, 127)
    return (x - rounded).square().mean().item()


def test_uniform_values_keep_their_whole_range():
    chooser = observer()
    chooser(torch.linspace(-1, 3, 10001))
    scale, zero_point = chooser.calculate_qparams()
    assert scale.item() == pytest.approx(4 / 255, rel=0.01)
    assert zero_point.item() == -64


@pytest.mark.parametrize("parts", [1, 7])
def test_an_outlier_is_clipped_where_that_loses_less(parts):
    x = torch.randn(700000, generator=torch.Generator().manual_seed(0))
    x[5] = 40.0
    chooser = observer()
    for part in x.chunk(parts):
        assert chooser(part) is part
    chosen = chooser.calculate_qparams()
    step = (x.max() - x.min()) / 255
    whole = step, (-128 - x.min() / step).round().int()
    assert error(x, *chosen) < 0.8 * error(x, *whole)


def test_a_growing_range_loses_no_count():
    chooser = observer()
    for reach in (0.01, 3.0, 0.5, 100.0):
        chooser(torch.linspace(-reach, reach, 1000))
    assert chooser.counts.sum() == 4000
    assert (chooser.low, chooser.high) == (-100.0, 100.0)


def test_zeros_of_a_relu_do_not_weigh():
    x = torch.randn(20000, generator=torch.Generator().manual_seed(1)).relu()
    with_zeros, without = observer(), observer()
    with_zeros(x)
    without(x[x > 0])
    assert with_zeros.calculate_qparams() == without.calculate_qparams()
    assert with_zeros.calculate_qparams()[1].item() == -128


def test_symmetric_formats_have_zero_point_0():
    chooser = observer(torch.per_tensor_symmetric, -32768, 32767, torch.int16)
    chooser(torch.linspace(-3, 1, 1001))
    scale, zero_point = chooser.calculate_qparams()
    assert zero_point.item() == 0
    assert scale.item() == pytest.approx(3 / 32767.5, rel=0.02)


def test_what_the_reader_does_not_see_takes_no_range():
    chooser = observer(floor=-3.0)
    chooser(torch.linspace(-20, 5, 1000))
    assert chooser.calculate_qparams()[0].item() == pytest.approx(8 / 255, rel=0.02)


def test_all_zeros_have_the_least_scale():
    chooser = observer()
    chooser(torch.zeros(10))
    scale, zero_point = chooser.calculate_qparams()
    assert (scale.item(), zero_point.item()) == (2**-16, -128)


def test_what_fresh_data_lose_in_the_range_of_the_others():
    """Eight times as far: nearly all of it is clipped, and more bins are joined meanwhile."""
    known, fresh = torch.linspace(-1, 1, 1001), torch.linspace(-8, 8, 1001)
    observer = RangeObserver(torch.int8, -128, 127, torch.per_tensor_affine)
    observer(known)
    before = observer._range()
    observer.hold()
    observer(fresh)
    error = (fresh - fresh.clamp(*before)).square().sum().item() + 1001 * ((before[1] - before[0]) / 255) ** 2 / 12
    low, high = observer._range()
    least = (fresh - fresh.clamp(low, high)).square().sum().item() + 1001 * ((high - low) / 255) ** 2 / 12
    assert observer.lost_db() == pytest.approx(10 * math.log10(error / least), abs=0.3)


def test_fresh_data_like_the_others_lose_nothing():
    observer = RangeObserver(torch.int8, -128, 127, torch.per_tensor_affine)
    assert observer.lost_db() == 0
    observer(torch.linspace(-1, 1, 1001))
    observer.hold()
    observer(torch.linspace(-1, 1, 1001))
    assert abs(observer.lost_db()) < 0.01
