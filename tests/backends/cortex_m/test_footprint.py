"""Lines that footprints promise, beside those that a cache fills when the loops are walked address by address."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.cortex_m.footprint import ArrayAccess, Place, Walk, lines_moved, words_moved
from tosaic.backends.cortex_m.kernel import Site
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners import find_runner
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.target import Cache, Memory
from tosaic.support.mlir import bytecode, parse
from tosaic.target_files.ready import find_target

CACHE = Cache("dcache", 1024, 4, 32)
PLACES: tuple[Place, ...] = ("input", "output", "params", "scratch")
A, B, C = "input", "params", "output"


def walked(walk: Walk) -> tuple[Counter[str], Counter[str]]:
    """Lines filled and written back, by place, of a cache of least recently used lines."""
    bases = {access.of: number << 20 for number, access in enumerate(reversed(walk.accesses))}
    sets: dict[int, dict[int, tuple[str, bool]]] = {}
    filled, written = Counter[str](), Counter[str]()
    for iterations in itertools.product(*(range(int(n)) for n in walk.loops)):
        for access in walk.accesses:
            if any(iterations[len(access.strides) :]):
                continue
            start = bases[access.of] + sum(int(s) * t for s, t in zip(access.strides, iterations, strict=False))
            for inner in itertools.product(*(range(int(n)) for n, _ in access.inner)):
                at = start + sum(int(s) * t for (_, s), t in zip(access.inner, inner, strict=True))
                for line in range(at // 32, (at + int(access.size) - 1) // 32 + 1):
                    lines = sets.setdefault(line % 8, {})
                    if line not in lines:
                        filled[access.place] += 1
                        if len(lines) == CACHE.ways:
                            place, dirty = lines.pop(next(iter(lines)))
                            written[place] += dirty
                    lines[line] = access.place, lines.pop(line, ("", False))[1] or access.writes
    return filled, written


NESTS = {
    "a copy": Walk((256.0,), (ArrayAccess("a", A, 16, (16,)), ArrayAccess("c", C, 16, (16,), writes=True))),
    "weights that the cache holds": Walk(
        (64.0, 8.0), (ArrayAccess("w", B, 16, (0, 16)), ArrayAccess("c", C, 4, (32, 4), writes=True))
    ),
    "weights that it does not hold": Walk(
        (16.0, 128.0), (ArrayAccess("w", B, 16, (0, 16)), ArrayAccess("c", C, 1, (128, 1), writes=True))
    ),
    "columns of rows, few": Walk((8.0, 16.0), (ArrayAccess("c", C, 4, (4, 40), writes=True),)),
    "columns of rows, many": Walk((8.0, 128.0), (ArrayAccess("c", C, 4, (4, 40), writes=True),)),
    "rows at a power of two": Walk((8.0, 16.0), (ArrayAccess("w", B, 4, (4, 256)),)),
    "windows that overlap": Walk((32.0, 32.0), (ArrayAccess("w", B, 24, (256, 8), inner=((3, 256),)),)),
    "rows that windows share, far apart": Walk((8.0, 4.0), (ArrayAccess("w", B, 32, (512, 32), inner=((3, 256),)),)),
    "a block at a time": Walk(
        (8.0, 4.0, 16.0), (ArrayAccess("w", B, 16, (256, 0, 16)), ArrayAccess("s", "scratch", 64, (0, 64), writes=True))
    ),
}


@pytest.mark.parametrize("name", NESTS)
def test_footprints_promise_what_a_cache_fills(name):
    promised = lines_moved(NESTS[name], PLACES, CACHE)
    filled, written = walked(NESTS[name])
    for place in ("output", "params", "scratch"):
        assert promised[place].filled == pytest.approx(filled[place], rel=0.15, abs=2)
        assert promised[place].written == pytest.approx(written[place], rel=0.15, abs=33)  # what stays at the end


def test_an_input_that_fits_is_there_and_one_that_does_not_is_written_back_first():
    small, large = (Walk((n,), (ArrayAccess("a", "input", 32, (32,)),)) for n in (16.0, 256.0))
    assert lines_moved(small, PLACES, CACHE)["input"] == (0, 0)
    assert lines_moved(large, PLACES, CACHE)["input"] == (256, 32)


def test_what_a_walk_before_has_read_is_there_where_it_fits():
    again = ArrayAccess("s", "scratch", 16, (16,), again=True)
    assert lines_moved(Walk((16.0,), (again,)), PLACES, CACHE)["scratch"].filled == 0
    assert lines_moved(Walk((256.0,), (again,)), PLACES, CACHE)["scratch"].filled == 128


def test_what_other_nests_access_in_shared_loops_takes_room():
    """Beside eight lines of weights, a row of eight lines fits; one of 32 does not, and is not counted twice."""
    walk = NESTS["weights that the cache holds"]
    few, many = (ArrayAccess("a", A, 32, (32 * n,), inner=((n, 32),)) for n in (8, 32))
    assert lines_moved(replace(walk, beside=(few,)), PLACES, CACHE)["params"].filled == pytest.approx(4, rel=0.2)
    crowded = lines_moved(replace(walk, beside=(many,)), PLACES, CACHE)
    assert crowded["params"].filled > 16 * 4
    assert crowded["input"].filled == 0


def test_without_a_cache_every_word_counts():
    walk = NESTS["weights that the cache holds"]
    assert words_moved(walk, "params", 8) == (64 * 8 * 16 / 8, 0)
    looked_up = Walk((64.0,), (ArrayAccess("table", "params", 256, (0,), accessed=64),))
    assert words_moved(looked_up, "params", 8) == (8, 0)


def test_a_site_prices_lines_by_their_memory():
    """Tensors and constants behind one cache share it; a memory without speed, or a core without timings, is free."""
    near = Memory("sram", 0, 1 << 20, 8, 38, caches=(CACHE,), line_fill=42, line_write_back=40)
    far = Memory("mram", 1 << 24, 1 << 20, 1, 118, caches=(CACHE,), line_fill=150)
    walk = NESTS["weights that it does not hold"]
    alone, moved = (lines_moved(walk, places, CACHE) for places in (PLACES[1:2], PLACES))
    tensors, beside = (42 * each["output"].filled + 40 * each["output"].written for each in (alone, moved))
    assert Site(None, None, near).waits([walk], PIPELINE) == pytest.approx(tensors)
    assert Site(far, None, near).waits([walk], PIPELINE) == pytest.approx(beside + 150 * moved["params"].filled)
    assert Site(far, None, near).waits([walk], None) == Site().waits([walk], PIPELINE) == 0
    features = Site(far, None, near).priced({"products": 1.0}, 1000.0, [walk], PIPELINE)
    assert features["params_lines_filled"] == moved["params"].filled
    assert features["estimate_with_waits"] == pytest.approx(1000 + beside + 150 * moved["params"].filled)


KERNELS = {
    "rows": """
func.func @main(%a: tensor<1x256x300xi8>) -> tensor<1x256x1xi8> {
  %0 = tosa.reduce_max %a {axis = 2 : i32} : (tensor<1x256x300xi8>) -> tensor<1x256x1xi8>
  return %0 : tensor<1x256x1xi8>
}""",
    "transpose": """
func.func @main(%a: tensor<1x96x64x32xi8>) -> tensor<1x32x96x64xi8> {
  %0 = tosa.transpose %a {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x96x64x32xi8>) -> tensor<1x32x96x64xi8>
  return %0 : tensor<1x32x96x64xi8>
}""",
    "pool": """
func.func @main(%a: tensor<1x64x64x32xi8>) -> tensor<1x32x32x32xi8> {
  %0 = tosa.max_pool2d %a {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>}
    : (tensor<1x64x64x32xi8>) -> tensor<1x32x32x32xi8>
  return %0 : tensor<1x32x32x32xi8>
}""",
    "elements": """
func.func @main(%a: tensor<1x64x64x32xi8>) -> tensor<1x64x64x32xi8> {
  %0 = tosa.clamp %a {min_val = -100 : i8, max_val = 90 : i8} : (tensor<1x64x64x32xi8>) -> tensor<1x64x64x32xi8>
  return %0 : tensor<1x64x64x32xi8>
}""",
    "resize": """
func.func @main(%a: tensor<1x48x48x32xi8>) -> tensor<1x96x96x32xi8> {
  %scale = tosa.const_shape {values = dense<[4, 2, 4, 2]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %offset = tosa.const_shape {values = dense<-1> : tensor<2xindex>} : () -> !tosa.shape<2>
  %border = tosa.const_shape {values = dense<1> : tensor<2xindex>} : () -> !tosa.shape<2>
  %0 = tosa.resize %a, %scale, %offset, %border {mode = BILINEAR} : (tensor<1x48x48x32xi8>, !tosa.shape<4>,
    !tosa.shape<2>, !tosa.shape<2>) -> tensor<1x96x96x32xi32>
  %m = "tosa.const"() {values = dense<1073741824> : tensor<1xi32>} : () -> tensor<1xi32>
  %s = "tosa.const"() {values = dense<34> : tensor<1xi8>} : () -> tensor<1xi8>
  %zi = "tosa.const"() {values = dense<0> : tensor<1xi32>} : () -> tensor<1xi32>
  %zo = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %1 = tosa.rescale %0, %m, %s, %zi, %zo {input_unsigned = false, output_unsigned = false, per_channel = false,
    rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x96x96x32xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>,
    tensor<1xi8>) -> tensor<1x96x96x32xi8>
  return %1 : tensor<1x96x96x32xi8>
}""",
}


@pytest.mark.parametrize("function", KERNELS.values(), ids=KERNELS)
def test_kernels_wait_for_memory_as_they_promise(function):
    target = find_target("cortex-m55", arena=["sram"])
    site = Site(target.layout.constants, None, target.layout.arena[0])
    task = KernelTask(bytecode(parse(function)), target.core, site=site)
    schedule = task.default()
    family = schedule.variant.partition(".")[0]
    promised = task.features(schedule)
    (found,) = BatchMeasure(find_runner("qemu", target), target.core, simulation_of(target).trials)(task, [schedule])
    assert found.ok
    waits = promised[f"{family}.estimate_with_waits"] - promised[f"{family}.estimate"]
    assert waits == pytest.approx(found.waits, rel=0.11)
