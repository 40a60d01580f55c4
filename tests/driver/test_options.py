"""What the options of a compilation change, and that the board still equals the reference."""

from __future__ import annotations

import runpy

import numpy as np
import pytest
import torch
from conftest import NETS

from tosaic.support.mlir import parse

NET = f"{NETS}:net"


@pytest.fixture(scope="module")
def compiled(succeed, tmp_path_factory):
    """Compile the net with options, once for each set; what was printed."""
    folder, known = tmp_path_factory.mktemp("builds"), {}

    def run(*options: object) -> dict:
        if options not in known:
            known[options] = succeed("compile", NET, *options, "-o", folder / f"{len(known)}")
        return known[options]

    return run


def families(report: dict) -> set[str]:
    return {kernel["schedule"].split(".")[0] for kernel in report["kernels"]}


def test_generic_kernels_only(compiled, succeed):
    report = compiled("--kernels", "generic")
    assert families(report) == {"linalg"}
    assert succeed("run", report["build"], "--random", 2)["exact"]


def test_cmsis_nn_where_it_has_a_kernel(compiled, succeed):
    report = compiled("--kernels", "cmsis-nn")
    assert "cmsis_nn" in families(report)
    run = succeed("run", report["build"], "--random", 2)
    assert run["exact"]
    generic = succeed("run", compiled("--kernels", "generic")["build"], "--random", 2)
    assert run["instructions"] < generic["instructions"]


def test_activations_of_16_bits(compiled, succeed):
    report = compiled("--activations", "int16")
    run = succeed("run", report["build"], "--random", 2)
    assert run["exact"] and np.load(run["outputs"][0]).dtype == np.int16
    assert run["sqnr_db"][0] > succeed("run", compiled()["build"], "--random", 2)["sqnr_db"][0]


@pytest.mark.parametrize("accelerator", ["ethos-u55-32", "ethos-u65-512", "ethos-u85-2048"])
def test_another_accelerator(compiled, succeed, accelerator):
    report = compiled("--target", "corstone-300", "--accelerator", accelerator)
    assert report["accelerator"] == accelerator and report["regions"]["npu"] == 1
    assert succeed("run", report["build"], "--random", 1)["exact"]


def test_an_accelerator_beside_a_core_that_has_none_is_refused(refused, tmp_path):
    message = refused("compile", NET, "--accelerator", "ethos-u55-64", "-o", tmp_path / "build")
    assert "`cortex-m55` has no NPU that another one could replace" in message
    assert "--target corstone-300 --accelerator ethos-u55-64" in message


def test_an_arena_of_just_the_size(compiled, refused, tmp_path):
    needed = compiled()["arena_bytes"]
    report = compiled("--arena-size", needed)
    assert report["arena_bytes"] <= needed
    assert "needs more memory" in refused("compile", NET, "--arena-size", needed // 8, "-o", tmp_path / "build")


@pytest.mark.parametrize("name", ["second", "linear"])
def test_what_is_excluded_stays_float(compiled, succeed, name):
    """By module or by op. The generated float code adds in another order than the reference, hence the tolerance."""
    report = compiled("--exclude", name)
    run = succeed("run", report["build"], "--random", 2)
    (output,) = run["outputs"]
    from tosaic import Build
    from tosaic.runs.running import Path, random_samples, reference_outputs

    build = Build.load(Path(report["build"]))
    assert "xf32>" in str(build.module)
    expected = np.stack([row[0] for row in reference_outputs(build, random_samples(build, 2, 0))])
    got = np.load(output)
    if run["exact"]:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(
            got.astype(np.float64), expected, rtol=1e-5, atol=1.0 if got.dtype == np.int8 else 1e-5
        )
    assert run["sqnr_db"][0] > 15


def test_excluding_what_is_not_there_is_refused(refused, tmp_path):
    message = refused("compile", NET, "--exclude", "secnd", "-o", tmp_path / "build")
    assert "secnd" in message


def test_every_module_on_the_way_can_be_kept(compiled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ir") / "deep" / "ir"
    compiled("--save-ir", folder, "--target", "corstone-300")
    files = {path.name for path in folder.iterdir()}
    assert "06-mlir-cse.mlir" in files and len(files) > 10
    assert any("fuse-clamp" in name for name in files)
    for path in folder.iterdir():
        parse(path.read_text())
    *_, last = sorted(folder.iterdir())
    assert last.name.endswith("-place-target-ethos-u55-128.mlir")
    assert 'tosaic.processor = "npu"' in last.read_text()


def test_verifying_every_exact_pass_changes_nothing(compiled):
    assert compiled("--verify-each")["kernels"] == compiled()["kernels"]


def test_a_pt2_and_its_factory_compile_alike(compiled, succeed, tmp_path):
    module, inputs, batches = runpy.run_path(str(NETS))["net"]()
    torch.export.save(torch.export.export(module, inputs), tmp_path / "net.pt2")
    np.savez(tmp_path / "cal.npz", x=np.stack([batch[0].numpy()[0] for batch in batches]))
    report = succeed("compile", tmp_path / "net.pt2", "--calibration", tmp_path / "cal.npz", "-o", tmp_path / "build")
    assert report["kernels"] == compiled()["kernels"]


def test_coarser_weights(compiled, succeed):
    usual, smaller = (compiled("--target", "corstone-300", *more) for more in ((), ("--weights", "2dB")))
    told = smaller["weights"]
    assert usual["weights"] is None and 0 < told["layers"] <= told["of_layers"]
    assert told["encoded_bytes"] < told["finest_bytes"] and told["sqnr_db"] >= told["finest_db"] - 2
    assert smaller["flash_bytes"] < usual["flash_bytes"]
    assert succeed("run", smaller["build"], "--random", 2)["exact"]


def test_weights_that_nothing_encodes(refused):
    message = refused("compile", NET, "--target", "cortex-m55", "--weights", "1dB")
    assert "--weights makes weights smaller that an NPU's compiler encodes" in message
    assert "cortex-m55 reads weights as they are" in message


def test_a_budget_of_weights_without_a_unit(tosaic):
    result = tosaic("compile", NET, "--weights", "1")
    assert result.exit_code == 2 and "'1' is no budget of weights; write 1dB or 20%" in result.output
