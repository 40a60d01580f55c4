"""A camera's pixels on the board: bytes as they come, without a copy of their own in float."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import NETS

from tosaic.api import Build

PIXELS = np.random.default_rng(3).integers(0, 256, (5, 1, 32, 32, 3), np.uint8)


@pytest.fixture(scope="module", params=["cortex-m55", "corstone-300"])
def camera(request, succeed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("camera") / "build"
    return folder, succeed("compile", f"{NETS}:camera", "--target", request.param, "-o", folder)


def test_the_firmware_takes_bytes(camera):
    folder, _ = camera
    (pixels,) = Build.load(folder).manifest.firmware.inputs
    assert pixels.dtype == "uint8" and pixels.shape == (1, 32, 32, 3)
    header = (folder / "kit" / "include" / "model.h").read_text()
    assert "typedef uint8_t model_input_pixels;" in header
    assert "pixels: uint8 [1, 32, 32, 3], real = (q - 0) * 1.0" in header


def test_pixels_run_as_they_are(camera, succeed, tmp_path):
    folder, _ = camera
    np.save(tmp_path / "pixels.npy", PIXELS)
    ran = succeed("run", folder, "--input", tmp_path / "pixels.npy")
    assert ran["exact"] and ran["samples"] == 5 and min(ran["sqnr_db"]) > 30
    run = Build.load(folder).run(PIXELS.astype(np.float32))
    assert run.exact and all(np.array_equal(*pair) for pair in zip(run.samples[1], PIXELS[1:2], strict=True))


def test_bytes_become_floats_in_the_kernel_that_reads_them(camera):
    _, report = camera
    first, second = report["ops"][:2]
    assert (first["op"], second["op"]) == ("RESCALE", "TABLE")
    assert first["function"] == second["function"]


def test_a_build_of_bytes_is_verified(camera, succeed):
    assert succeed("verify", camera[0])["exact"]
