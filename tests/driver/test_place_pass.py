"""`place` on a module of a file, for a target, as any other pass."""

import pytest

NET = """
func.func @main(%x: tensor<1x8x8x8xi8>) -> tensor<1x8x8x8xi32> {
  %w = "tosa.const"() <{values = dense<1> : tensor<8x3x3x8xi8>}> : () -> tensor<8x3x3x8xi8>
  %b = "tosa.const"() <{values = dense<0> : tensor<8xi32>}> : () -> tensor<8xi32>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.conv2d %x, %w, %b, %zero, %zero {acc_type = i32, pad = array<i64: 1, 1, 1, 1>,
    stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>}
    : (tensor<1x8x8x8xi8>, tensor<8x3x3x8xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x8x8xi32>
  %1 = tosa.clz %0 : (tensor<1x8x8x8xi32>) -> tensor<1x8x8x8xi32>
  %2 = tosa.bitwise_not %1 : (tensor<1x8x8x8xi32>) -> tensor<1x8x8x8xi32>
  return %2 : tensor<1x8x8x8xi32>
}
"""


@pytest.fixture
def net(tmp_path):
    file = tmp_path / "net.mlir"
    file.write_text(NET)
    return file


@pytest.mark.parametrize(
    ("pipeline", "processors", "reason"),
    [
        ("place", ["cpu", "cpu"], ""),
        ("place{target=cortex-m55}", ["cpu", "cpu"], ""),
        ("place{target=corstone-300}", ["npu", "cpu"], "Ethos-U55 has no BITWISE_NOT"),
        ("place{target=ethos-u65-256}", ["npu", "cpu"], "Ethos-U65 has no BITWISE_NOT"),
        ("place{target=corstone-320}", ["npu"], ""),
        ("place{target=corstone-300 hop-cost=1000000000}", ["cpu", "cpu"], "its region is not worth a hop to the NPU"),
    ],
)
def test_by_target(tosaic, net, pipeline, processors, reason):
    result = tosaic("opt", net, "--pass-pipeline", pipeline, "--verify-each")
    assert result.exit_code == 0, result.stderr
    found = [line.partition('tosaic.processor = "')[2][:3] for line in result.stdout.splitlines()]
    assert [processor for processor in found if processor] == processors
    assert reason in result.stdout and bool(reason) == ("tosaic.reason" in result.stdout)


def test_an_op_that_carries_a_reason_stays_on_the_cpu(tosaic, net):
    net.write_text(NET.replace("acc_type = i32", 'tosaic.reason = "by hand", acc_type = i32'))
    printed = tosaic("opt", net, "--pass-pipeline", "place{target=corstone-300}").stdout
    assert 'tosaic.reason = "by hand"' in printed and '"npu"' not in printed


def test_an_unknown_target_is_answered_with_those_there_are(refused, net, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    message = refused("opt", net, "--pass-pipeline", "place{target=pdp-11}")
    assert "there is no target `pdp-11`" in message
    assert "corstone-300" in message and "ethos-u85-256" in message


def test_it_is_dumped_and_printed_like_every_pass(tosaic, net, tmp_path):
    result = tosaic(
        "opt", net, "--pass-pipeline", "place{target=corstone-300}", "--save-ir", tmp_path / "ir",
        "--print-ir-after", "place",
    )  # fmt: skip
    assert "// ---- after place{target=corstone-300} ----" in result.stderr
    assert [path.name for path in (tmp_path / "ir").iterdir()] == ["00-place-target-corstone-300.mlir"]
