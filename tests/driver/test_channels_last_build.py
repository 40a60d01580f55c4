"""A build that takes images with their channels last, through the command line."""

from __future__ import annotations

import numpy as np


def test_a_build_takes_images_as_a_camera_gives_them(succeed, tmp_path):
    image = np.random.default_rng(0).standard_normal((1, 1, 49, 10)).astype(np.float32)
    outputs = {}
    for layout, given in (("model", image), ("nhwc", np.ascontiguousarray(image.transpose(0, 2, 3, 1)))):
        build, data = tmp_path / layout, tmp_path / f"{layout}.npy"
        np.save(data, given)
        options = ("--target", "corstone-300", "--input-layout", layout, "--records", tmp_path / "records.db")
        compiled = succeed("compile", "zoo:dscnn", *options, "-o", build)
        assert not [op for op in compiled["ops"] if op["op"] == "TRANSPOSE"]
        report = succeed("run", build, "--input", data, "--output", tmp_path / f"out-{layout}")
        assert report["exact"]
        outputs[layout] = np.load(report["outputs"][0])
    assert np.array_equal(outputs["model"], outputs["nhwc"])
