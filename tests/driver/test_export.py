"""Formats of others: TOSA, and ExecuTorch's delegate for Ethos-U."""

from __future__ import annotations

import struct
import sys

import numpy as np
import pytest
from conftest import NETS

from tosaic.api import Build
from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.reference import evaluate
from tosaic.compiler.executorch_export import delegate_payload, delegate_regions
from tosaic.compiler.trial_inputs import call_inputs
from tosaic.support.functions import functions_on, standalone

NPU_BLOCKS = ["vela_bin_stream", "cmd_data", "weight_data", "scratch_size", "inputs", "outputs", "vela_end_stream"]


@pytest.fixture(scope="module")
def build(net):
    return Build.load(net)


def test_the_tosa_file_is_the_integer_module_and_compiles_again(build, succeed, tmp_path):
    file = tmp_path / "net.tosa"
    assert succeed("export", build.folder, "--tosa", file) == {"files": [str(file)]}
    (sample, *_) = build.samples
    assert all(map(np.array_equal, evaluate(file.read_bytes(), sample.inputs), sample.outputs))
    again = succeed("compile", file, "-o", tmp_path / "again", "--no-prove")
    assert again["regions"]["cpu"] > 0


def test_a_payload_is_what_the_delegate_reads_and_computes_the_region(build):
    (region,) = delegate_regions(build).values()
    data, at, blocks = delegate_payload(region), 0, {}
    while at < len(data):
        name, length = data[at : at + 16].rstrip(b"\0").decode(), struct.unpack_from("<I", data, at + 16)[0]
        assert data[at + 20 : at + 32] == bytes(12)
        blocks[name] = data[at + 32 : at + 32 + length]
        at += 32 + -(-length // 16) * 16
    assert list(blocks) == NPU_BLOCKS and at == len(data)
    assert blocks["cmd_data"][:4] == b"COP1" and blocks["weight_data"] == region.constants
    (scratch,) = struct.unpack("<I", blocks["scratch_size"])
    for name, ports in (("inputs", region.inputs), ("outputs", region.outputs)):
        count, *numbers = struct.unpack(f"<{len(blocks[name]) // 4}i", blocks[name])
        assert count == len(ports) and len(numbers) == 9 * count
        for port, row in zip(ports, np.reshape(numbers, (count, 9)), strict=True):
            assert np.prod(row[:6]) * row[6] == port.size and row[8] == 1
            assert row[7] >= 0 and row[7] + port.size <= scratch
    (function,) = functions_on("npu", build.placed).values()
    (read,) = call_inputs(build.placed, ["npu_0"], build.samples[1].inputs).values()
    assert all(map(np.array_equal, emulate(region, read).outputs, evaluate(standalone(function), read)))


def test_what_the_core_computes_is_listed(refused, succeed, tmp_path):
    succeed("compile", f"{NETS}:small", "-o", tmp_path / "core")
    message = refused("export", tmp_path / "core", "--pte", tmp_path / "core.pte")
    assert "no op that computes to the bit" in message
    ops = Build.load(tmp_path / "core").manifest.ops
    for op in ops:
        (line,) = [line for line in message.splitlines() if op.where in line and f"`{op.module}`" in line]
        assert op.op in line and op.reason in line
    assert not (tmp_path / "core.pte").exists()
    assert "say what to write" in refused("export", tmp_path / "core")


def test_without_executorch_it_says_what_to_install(build, refused, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "executorch.exir", None)
    assert "pip install executorch==1.5.1" in refused("export", build.folder, "--pte", tmp_path / "net.pte")


def test_executorch_reads_the_program(build, succeed, tmp_path):
    pytest.importorskip("executorch.exir", reason="executorch is not installed")
    from executorch.runtime import Runtime  # pyright: ignore[reportMissingImports]

    succeed("export", build.folder, "--pte", tmp_path / "net.pte")
    data = (tmp_path / "net.pte").read_bytes()
    (region,) = delegate_regions(build).values()
    assert delegate_payload(region) in data
    program = Runtime.get().load_program(data)
    meta = program.metadata("forward")
    (given,), (taken,) = build.manifest.firmware.outputs, build.manifest.firmware.inputs
    assert tuple(meta.input_tensor_meta(0).sizes()) == taken.shape
    assert tuple(meta.output_tensor_meta(0).sizes()) == given.shape
