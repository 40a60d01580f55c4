"""Models with several methods: one library, one place for each state, the methods in any order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import NETS

from tosaic.api import Build, compile
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.build import simulator_objects
from tosaic.backends.firmware.decoder import Prefill, TokenDecoder
from tosaic.backends.simulators.runners import find_runner
from tosaic.builds.build import BuildFolder
from tosaic.runs.running import reference_calls
from tosaic.support.functions import functions_on
from tosaic.support.methods import method_of

METHODS = NETS.parent / "methods.py"
_MAIN = """
#include "model.h"
#include "semihosting.h"

static model_instance model;

int main(void)
{
    host_file given = host_open("given.bin", HOST_READ), made = host_open("made.bin", HOST_WRITE);
    if (model_init_static(&model))
        return 1;
CALLS
    host_close(made);
    return 0;
}
"""


def compiled(succeed, folder: Path, methods: str, *options: object) -> Path:
    succeed("compile", f"{METHODS}:{methods}", *options, "-o", folder / "build")
    return folder / "build"


@pytest.fixture(scope="module")
def window(succeed, tmp_path_factory) -> Path:
    return compiled(succeed, tmp_path_factory.mktemp("window"), "several,one,halved", "--target", "cortex-m55")


@pytest.fixture(scope="module")
def decoder(succeed, tmp_path_factory) -> Path:
    return compiled(succeed, tmp_path_factory.mktemp("decoder"), "prefill,decode", "--target", "cortex-m55")


def on_board(folder: Path, calls: list[tuple[str, list[np.ndarray]]], tmp_path: Path) -> list[list[np.ndarray]]:
    """The results of calls on the simulated board, by a program of its own."""
    build = Build.load(folder)
    firmware, core = build.manifest.firmware, build.manifest.target.core
    lines, sizes = list[str](), list[list[np.ndarray]]()
    for name, inputs in calls:
        own = [number for number, each in enumerate(firmware.inputs) if each.name.startswith(f"{name}_")]
        lines += [
            f"    host_read(given, model.inputs[{number}], {array.nbytes});"
            for number, array in zip(own, inputs, strict=True)
        ]
        lines.append(f"    if (model_{name}(&model))\n        return 1;")
        given = [n for n, each in enumerate(firmware.outputs) if each.name.split("_")[0] == name]
        lines += [f"    host_write(made, model.outputs[{n}], model_outputs[{n}].bytes);" for n in given]
        sizes.append([np.empty(firmware.outputs[n].shape, firmware.outputs[n].dtype) for n in given])
    main = tmp_path / "main.c"
    main.write_text(_MAIN.replace("CALLS", "\n".join(lines)))
    toolchain.compile_c(main, tmp_path / "main.o", core, f"-I{folder / 'kit' / 'include'}")
    parts = simulator_objects(folder, "model", core, firmware.has_npu, str(tmp_path / "main.o"))
    toolchain.link(parts, folder / "model.ld", tmp_path / "calls.elf", core)
    files = {"given.bin": b"".join(array.tobytes() for _, inputs in calls for array in inputs)}
    ran = find_runner("qemu", build.manifest.target).run(tmp_path / "calls.elf", files, count=False).check("calls")
    data, found = ran.files["made.bin"], list[list[np.ndarray]]()
    for arrays in sizes:
        found.append([])
        for like in arrays:
            found[-1].append(np.frombuffer(data[: like.nbytes], like.dtype).reshape(like.shape))
            data = data[like.nbytes :]
    return found


def test_the_methods_in_turn_are_exact(window, succeed):
    told = succeed("run", window)
    assert told["exact"] and [method["name"] for method in told["methods"]] == ["several", "one", "halved"]
    assert sum(method["cpu"] for method in told["methods"]) == told["cycles_with_memory"]


def test_methods_in_any_order(window, tmp_path):
    build, rng = Build.load(window), np.random.default_rng(0)
    firmware = build.manifest.firmware
    order = ["one", "one", "halved", "several", "one", "several", "halved", "halved", "one", "several"]
    calls = [
        (
            name,
            [
                rng.integers(-128, 128, each.shape).astype(each.dtype)
                for each in firmware.inputs
                if each.name.startswith(f"{name}_")
            ],
        )
        for name in order
    ]
    expected = reference_calls(build, calls)
    for wanted, got in zip(expected, on_board(window, calls, tmp_path), strict=True):
        assert len(wanted) == len(got) and all(map(np.array_equal, wanted, got))


def test_a_header_tells_the_methods(window):
    text = (window / "kit" / "include" / "model.h").read_text()
    assert "int model_several(const model_instance *self);" in text
    assert "/* Takes one_x; gives one_mean, one_count. */" in text
    states = [state.name for state in BuildFolder.load(window).manifest.firmware.states]
    assert len(states) == 2, "methods share their states"


def test_what_an_encoder_wrote_stays(succeed, tmp_path):
    folder = compiled(succeed, tmp_path, "encode,read", "--target", "cortex-m55")
    build, rng = Build.load(folder), np.random.default_rng(0)
    image, gain = (
        [rng.integers(-128, 128, each.shape).astype(each.dtype) for _ in range(2)]
        for each in build.manifest.firmware.inputs
    )
    calls = [("encode", image[:1]), ("read", gain[:1]), ("read", gain[1:]), ("encode", image[1:]), ("read", gain[:1])]
    expected = reference_calls(build, calls)
    for wanted, got in zip(expected, on_board(folder, calls, tmp_path), strict=True):
        assert all(map(np.array_equal, wanted, got))
    assert not np.array_equal(expected[1][0], expected[4][0])


def test_a_region_of_an_npu_has_ops_of_one_method(succeed, tmp_path):
    folder = compiled(succeed, tmp_path, "encode,read", "--target", "corstone-300")
    build = BuildFolder.load(folder)
    regions = functions_on("npu", build.placed)
    assert sorted(map(method_of, regions.values())) == [0, 1]
    told = succeed("run", folder)
    assert told["exact"] and all(method["npu"] for method in told["methods"])


def test_weights_lie_once(decoder):
    (weights,) = (decoder / "constants").glob("weights_*.bin")
    assert weights.stat().st_size >= 32 * 16
    bodies = (decoder / "model.c").read_text().split("int model_decode(")
    assert len(bodies) == 2 and all(body.count("_shared(near_") == 1 for body in bodies)


def test_a_prompt_goes_through_prefill(decoder, succeed):
    found = BuildFolder.load(decoder).manifest.firmware.decoder
    prefill = Prefill("prefill", "prefill_token", "prefill_place", 4, 1)
    assert found == TokenDecoder("decode_token", "decode_place", 32, 12, 1, "decode", prefill)
    done = Build.load(decoder).generate([3, 5, 7, 9, 11, 13], 5)
    assert not done.difference and len(done.steps) == 1 + 2 + 4
    assert done.tokens_per_second and done.first_milliseconds
    assert succeed("run", decoder)["exact"]


def test_a_full_context_is_not_filled_by_prefill(decoder):
    done = Build.load(decoder).generate(list(range(12)), 1)
    assert not done.difference and len(done.steps) == 2 + 4


def test_a_dict_of_methods(tmp_path):
    import importlib.util

    spec = importlib.util.spec_from_file_location("methods_of_tests", METHODS)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    net = made._window()
    samples = [{"many": many, "one": one} for many, one in zip(made._rows(4, 3, 1), made._rows(4, 1, 2), strict=True)]
    given = {"many": (net, samples[0]["many"]), "one": (net, samples[0]["one"])}
    build = compile(given, target="cortex-m55", calibration=samples, output=tmp_path / "build")
    assert build.run().exact
    assert [each.name for each in build.manifest.firmware.methods] == ["many", "one"]
    assert net.past.abs().sum() == 0, "the module stays as it is"


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ("several,too_few", "different numbers of calibration batches\n  because: several 6, too_few 2"),
        ("several,nothing", "has no function `nothing`"),
    ],
)
def test_methods_that_cannot_be(refused, tmp_path, methods, words):
    assert words in refused("compile", f"{METHODS}:{methods}", "-o", tmp_path / "build")
