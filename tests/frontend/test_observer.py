"""The range an observer chooses loses less than the whole range, and is the whole range where nothing is to gain."""

from __future__ import annotations

import math

import pytest
import torch

from tosaic.frontend.observer import FOLDS, RangeObserver


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


def folded(*samples: torch.Tensor) -> RangeObserver:
    """An observer that has seen samples, each a fold in turn."""
    observer = RangeObserver(torch.int8, -128, 127, torch.per_tensor_affine)
    for number, sample in enumerate(samples):
        observer.fold = number % FOLDS
        observer(sample)
    return observer


def noise(sample: torch.Tensor, low: float, high: float) -> float:
    clipped = (sample - sample.clamp(low, high)).square().sum().item()
    return clipped + len(sample) * ((high - low) / 255) ** 2 / 12


def test_what_fresh_data_lose_in_the_range_of_the_others():
    """One of four samples reaches eight times as far, and more bins are joined meanwhile."""
    samples = [torch.linspace(-reach, reach, 1001) for reach in (1, 1, 8, 1)]
    observer = folded(*samples)
    apart = RangeObserver(torch.int8, -128, 127, torch.per_tensor_affine)
    apart(torch.cat([samples[0], samples[1], samples[3]]))
    known, whole, h = apart._range(), observer._range(), observer.headroom
    lost = noise(samples[2], h * known[0], h * known[1]) + 3 * noise(samples[0], h * whole[0], h * whole[1])
    least = sum(noise(sample, h * whole[0], h * whole[1]) for sample in samples)
    assert h == 2.0  # the most; what the others would need is eight
    assert observer.lost_db() == pytest.approx(10 * math.log10(lost / least), abs=0.3)


def test_fresh_data_like_the_others_lose_nothing():
    observer = folded(*4 * [torch.linspace(-1, 1, 1001)])
    assert observer.headroom == 1.0 and abs(observer.lost_db()) < 0.01
    alone = folded(torch.linspace(-1, 1, 1001))
    assert alone.headroom == 1.0 and alone.lost_db() == 0


def test_samples_of_different_reach_get_headroom_and_fresh_ones_less_noise():
    draws = torch.Generator().manual_seed(0)
    samples = [torch.randn(64, generator=draws) * torch.randn(1, generator=draws).exp() for _ in range(216)]
    observer = folded(*samples[:16])
    low, high = observer._range()
    stretched = observer.headroom
    assert stretched > 1
    scale, _ = observer.calculate_qparams()
    assert scale.item() == pytest.approx(stretched * (high - low) / 255)
    fresh = torch.cat(samples[16:])
    assert noise(fresh, stretched * low, stretched * high) < 0.8 * noise(fresh, low, high)


def test_headroom_ends_where_the_reader_sees_no_difference():
    observer = RangeObserver(torch.int8, -128, 127, torch.per_tensor_affine, floor=-3.0, ceiling=3.0)
    for number, reach in enumerate((1.0, 1.0, 2.9, 2.0)):
        observer.fold = number
        observer(torch.linspace(-reach, reach, 1001))
    assert observer.headroom > 1.05
    scale, _ = observer.calculate_qparams()
    assert scale.item() <= 6 / 255 + 1e-6


def written_by_rows(rows: int) -> list[torch.Tensor]:
    """A state at the end of each call, which writes so many rows of it; the last ones reach far."""
    draws, state = torch.Generator().manual_seed(0), torch.zeros(64, 128)
    states = [state]
    for number in range(0, 64, rows):
        state = state.clone()
        state[number : number + rows] = torch.randn(rows, 128, generator=draws) * (9.0 if number > 30 else 1.0)
        states.append(state)
    return states


@pytest.mark.parametrize("rows", [1, 32])
def test_a_state_written_by_rows_is_counted_as_one_that_is_seen_anew(rows):
    seen, anew = observer(), observer()
    for number, state in enumerate(written_by_rows(rows)):
        seen.fold = anew.fold = number % FOLDS
        seen(state)
        anew._before = None
        anew(state)
    assert seen.counts.equal(anew.counts) and seen.folds.equal(anew.folds)
    assert (seen.low, seen.high, seen.range) == (anew.low, anew.high, anew.range)


def test_what_does_not_change_by_rows_is_held_no_longer():
    chooser, draws = observer(), torch.Generator().manual_seed(0)
    for held in (True, False, False):
        chooser(torch.randn(64, 128, generator=draws))
        assert (chooser._before is not None) == held
    chooser = observer()
    chooser(torch.zeros(64, 128))
    chooser.forget()
    assert chooser._before is None


def test_a_row_that_is_no_number_is_noticed():
    chooser, state = observer(), torch.zeros(64, 128)
    chooser(state)
    with pytest.raises(ValueError, match="NaN"):
        chooser(torch.where(torch.arange(64)[:, None] == 3, math.nan, state))
