import pytest
from tosa_graphs import Graph

from tosaic.passes import PHASES, PassTimes, parse_pipeline, phases_of, place_phase, run_phase, run_phases
from tosaic.passes.phases import Phase
from tosaic.support.errors import PassError
from tosaic.support.mlir import functions, ir, parse, walk

MAIN = "func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> { return %x : tensor<4xi8> }"


def test_the_phases_in_order():
    assert list(PHASES) == ["legalize", "quantize", "layout", "fuse", "cpu", "npu", "place"]
    assert [phase.name for phase in PHASES.values() if phase.exact] == ["layout", "fuse", "cpu", "npu", "place"]
    assert phases_of(npu=True) == ["legalize", "quantize", "layout", "fuse", "npu"]
    assert phases_of(npu=False) == ["legalize", "quantize", "layout", "fuse", "cpu"]
    timing = PassTimes()
    run_phases(parse(MAIN), PHASES, [timing])
    assert set(timing.seconds) == {one.name for phase in PHASES.values() for one in phase.passes}


def test_a_phase_that_leaves_something_else_is_named():
    graph = Graph()
    module = graph.module(graph.unary("identity", graph.input((4,))))
    with pytest.raises(PassError, match=r"phase `idle` left an invalid module: `same_value` still applies"):
        run_phase(module, Phase("idle", (), (), PHASES["fuse"].check))
    run_phase(module, "fuse")
    assert [op.name for op in walk(functions(module)["main"])] == ["func.return"]


def test_a_check_leaves_the_module_as_it_is():
    module = parse(MAIN)
    module.operation.attributes["tosaic.kept"] = ir.UnitAttr.get(module.context)
    before = str(module)
    run_phases(module, ["legalize", "quantize", "layout", "fuse", "cpu", "npu"])
    assert str(module) == before


def test_passes_that_join_a_phase_run_before_its_closing_ones(monkeypatch):
    (joining,) = parse_pipeline("fuse-clamp")
    monkeypatch.setattr(type(joining), "phase", "layout")
    names = [one.name for one in PHASES["layout"].passes]
    assert names[-3:] == ["fuse-clamp", "transposes-to-reshapes", "mlir"]


def test_place_is_a_phase_for_a_target_and_without_one():
    assert [str(one) for one in PHASES["place"].passes] == ["place"]
    assert [str(one) for one in place_phase("ethos-u55-128").passes] == ["place{target=ethos-u55-128}"]
    with pytest.raises(PassError, match="there is no target `pdp-11`"):
        run_phase(parse(MAIN), place_phase("pdp-11"))
