"""CMSIS-NN: found, built once, called exactly; and a wrong folder is answered."""

from __future__ import annotations

import mve_layers
import numpy as np
import pytest
from board import M3, M4, M55, Bench, Case, run_cases
from tosa_graphs import Graph, random_input

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.cmsis_nn import CONVOLVE, FULLY_CONNECTED, FUNCTIONS, LIBRARY, VARIABLE, CmsisNn
from tosaic.backends.cortex_m.kernels.cmsis_nn import CmsisNnKernels
from tosaic.backends.reference import evaluate
from tosaic.support.errors import BackendError
from tosaic.support.mlir import functions
from tosaic.tuner.space import Space

BENCHES = pytest.mark.parametrize("bench", [M55, M4, M3], ids=["MVE", "DSP", "scalar"])


@pytest.fixture(scope="module")
def family() -> CmsisNnKernels:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)
        library = CmsisNn.find()
    assert library is not None
    return CmsisNnKernels({LIBRARY: library.root})


def _run(family, cases, folder, bench: Bench):
    return run_cases(cases, folder, include=CmsisNn(family.libraries[LIBRARY]).include, bench=bench)


@BENCHES
def test_layers_are_exact(family, tmp_path, bench):
    rng, archive = np.random.default_rng(0), (CmsisNn(family.libraries[LIBRARY]).archive(bench.core),)
    layers = [
        mve_layers.conv2d(rng, (1, 6, 6, 16), 24, (1, 1)),
        mve_layers.conv2d(rng, (1, 7, 7, 5), 9, (1, 1), stride=(2, 2)),
        mve_layers.conv2d(rng, (2, 6, 5, 7), 10, (3, 2), pad=(1, 1, 0, 1), clamp=(-20, 90)),
        mve_layers.conv2d(rng, (1, 1, 20, 8), 16, (1, 3), pad=(0, 0, 1, 1)),
        mve_layers.conv2d(rng, (1, 9, 9, 4), 6, (3, 3), dilation=(2, 2)),
        mve_layers.conv2d(rng, (2, 1, 1, 50), 11, (1, 1), per_channel=False),
        mve_layers.depthwise(rng, (1, 8, 8, 20), (3, 3), pad=(1, 1, 1, 1)),
        mve_layers.depthwise(rng, (1, 9, 9, 5), (3, 3), stride=(2, 2), clamp=(-100, 5)),
        mve_layers.depthwise(rng, (1, 7, 6, 3), (5, 3), 2, pad=(2, 2, 1, 1)),
        mve_layers.depthwise(rng, (1, 7, 6, 130), (5, 5), pad=(2, 2, 2, 2)),
    ]
    cases = [
        layer.case(family, schedule, archive, bench.core)
        for layer in layers
        for schedule in layer.space(family, bench.core).schedules()
    ]
    assert len(cases) > len(layers)
    for outcome in _run(family, cases, tmp_path, bench):
        assert outcome.exact, outcome


@BENCHES
@pytest.mark.parametrize(
    "kind, options", [("max", {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 0, 1, 0)}), ("avg", {"kernel": (3, 3)})]
)
def test_pools_are_exact(family, tmp_path, kind, options, bench):
    graph = Graph()
    x = graph.input((2, 6, 6, 20))
    module = graph.module(graph.pool(kind, x, **options, **({"zero": 7} if kind == "avg" else {})))
    function = functions(module)["main"]
    workload = family.match(function)
    schedule = Space(tuple(family.variants(workload, bench.core))).default()
    image = random_input(np.random.default_rng(1), (2, 6, 6, 20), "i8")
    source = family.generate(workload, schedule, bench.core)
    case = Case(
        source, [image], evaluate(module, [image]), "", (CmsisNn(family.libraries[LIBRARY]).archive(bench.core),)
    )
    (outcome,) = _run(family, [case], tmp_path, bench)
    assert outcome.exact, outcome


def test_an_average_that_can_tie_is_not_offered(family):
    graph = Graph()
    module = graph.module(graph.pool("avg", graph.input((1, 4, 4, 8)), (2, 2)))
    assert family.match(functions(module)["main"]) is None


def test_one_scale_for_all_channels_admits_the_per_tensor_function(family):
    rng = np.random.default_rng(2)
    for per_channel in (False, True):
        layer = mve_layers.conv2d(rng, (1, 1, 1, 32), 16, (1, 1), per_channel=per_channel)
        names = {variant.name for variant in family.variants(layer.workload(family), CORTEX_M55)}
        assert CONVOLVE in names
        assert (FULLY_CONNECTED in names) is not per_channel


def test_an_absent_function_is_not_offered_and_is_named(tmp_path):
    (tmp_path / "Include").mkdir()
    (tmp_path / "Include" / "arm_nnfunctions.h").write_text("")
    folder = tmp_path / "Source" / "ConvolutionFunctions"
    folder.mkdir(parents=True)
    (folder / "other.c").write_text("int arm_convolve_wrapper_s8(const void *context)\n{\n  return 0;\n}\n")
    library = CmsisNn.find(tmp_path)
    assert library is not None
    assert library.missing == [name for name in FUNCTIONS if name != CONVOLVE]
    layer = mve_layers.depthwise(np.random.default_rng(3), (1, 4, 4, 4), (3, 3))
    partial = CmsisNnKernels({LIBRARY: library.root})
    assert partial.variants(layer.workload(partial), CORTEX_M55) == ()


def test_a_folder_without_cmsis_nn_is_refused(tmp_path, monkeypatch):
    with pytest.raises(BackendError, match=r"there is no CMSIS-NN in .*\n.*no Include/arm_nnfunctions\.h"):
        CmsisNn.find(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(BackendError, match="there is no CMSIS-NN"):
        CmsisNn.find()


def test_equal_shapes_share_glue(family):
    rng = np.random.default_rng(4)
    sources = [mve_layers.conv2d(rng, (1, 6, 6, 8), 8, (3, 3)).case(family).source for _ in range(2)]
    assert sources[0].symbol == sources[1].symbol
    assert sources[0].params != sources[1].params


def test_results_wider_than_eight_bits_are_not_offered(family):
    layer = mve_layers.conv2d(np.random.default_rng(5), (1, 6, 6, 8), 8, (3, 3), element="i16")
    assert family.match(layer.function) is None
