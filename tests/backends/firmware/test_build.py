"""From a program to an ELF that runs: kernels, in-place, reshape, constants, several memories, and NPU calls."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tosaic.backends.boards import MPS3_AN547
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import KernelSource, Overlap
from tosaic.backends.firmware.build import build_firmware
from tosaic.backends.firmware.program import CallSequence, Interface, KernelCall, NpuCall, Port, TensorBuffer
from tosaic.backends.firmware.records import Firmware
from tosaic.backends.simulators.npu_bridge import COMMAND_STREAM
from tosaic.backends.simulators.run import run_firmware
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.backends.target import Layout, Memory, Target
from tosaic.support.errors import BackendError, OutOfMemoryError, SimulatorError
from tosaic.support.quantization import Quantization

KIB = 1024
BOARD = Target(
    "board",
    CORTEX_M55,
    MPS3_AN547,
    Layout(
        code=Memory("itcm", 0, 512 * KIB),
        stack=Memory("stack", 0x2000_0000, 64 * KIB),
        arena=(Memory("dtcm", 0x2001_0000, 64 * KIB), Memory("sram", 0x2100_0000, 4096 * KIB)),
        constants=Memory("ddr", 0x6000_0000, 64 * 1024 * KIB),
    ),
    "ethos-u55-128",
)
QEMU = Qemu.of(BOARD)
INT8 = np.dtype(np.int8)
HALVES = Quantization.per_tensor("i8", 0.5, -3)
SCALE = KernelSource(
    "scale",
    "c",
    "void scale(const signed char *x, signed char *y, const signed char *params, int *scratch)"
    "{ for (int i = 0; i < 64; i++) { scratch[i] = x[i] * params[i % 4]; y[i] = (signed char)scratch[i]; } }",
    params=bytes([1, 2, 3, 4]),
    scratch_bytes=256,
)
ADD = KernelSource(
    "add",
    "c",
    "void add(const signed char *a, const signed char *b, signed char *y, const void *params, void *scratch)"
    "{ (void)params; (void)scratch; for (int i = 0; i < 64; i++) y[i] = (signed char)(a[i] + b[i]); }",
    in_place=(Overlap(0, 0),),
)
OFFSETS = np.arange(64, dtype=np.int8)


def two_kernels() -> CallSequence:
    buffers = {
        "x": TensorBuffer((8, 8), INT8),
        "flat": TensorBuffer((64,), INT8),
        "scaled": TensorBuffer((64,), INT8),
        "offsets": TensorBuffer((64,), INT8, OFFSETS),
        "y": TensorBuffer((64,), INT8),
    }
    calls = (
        KernelCall(SCALE, ("flat",), ("scaled",), "model.py:3 aten.mul"),
        KernelCall(ADD, ("scaled", "offsets"), ("y",), "model.py:4 aten.add"),
    )
    interfaces = (
        (Interface("image", "x", HALVES),),
        (Interface("score", "y"), Interface("middle", "scaled")),
    )
    return CallSequence(interfaces[0], interfaces[1], buffers, calls, {"flat": "x"})


def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = (x.ravel().astype(np.int32) * np.tile([1, 2, 3, 4], 16)).astype(np.int8)
    return (scaled + OFFSETS).astype(np.int8), scaled


def random_images(count: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    return [[rng.integers(-128, 128, (8, 8)).astype(np.int8)] for _ in range(count)]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Firmware]:
    folder = tmp_path_factory.mktemp("build")
    return folder, build_firmware(two_kernels(), BOARD, folder)


@pytest.fixture
def built(made) -> Path:
    return made[0]


def run(made: tuple[Path, Firmware], samples, npu=None):
    folder, firmware = made
    return run_firmware(folder / "model.elf", firmware, samples, QEMU, npu)


def test_two_kernels_run_for_every_sample(made):
    samples = random_images(5)
    result = run(made, samples)
    for (x,), outputs in zip(samples, result.outputs, strict=True):
        for want, got in zip(expected(x), outputs, strict=True):
            np.testing.assert_array_equal(want, got)


def test_every_call_is_counted_by_name(made):
    result = run(made, random_images(2))
    assert [(c.name, c.processor, c.where) for c in result.calls] == [
        ("scale", "cpu", "model.py:3 aten.mul"),
        ("add", "cpu", "model.py:4 aten.add"),
    ]
    costs = [c.instructions for c in result.calls if c.instructions and c.cycles and c.cycles > 16]
    assert len(costs) == 2 and min(costs) > 16
    assert result.instructions == sum(costs)
    assert result == replace(run(made, random_images(2)), outputs=result.outputs)


def test_the_source_has_one_call_a_line(built):
    source = (built / "model.c").read_text()
    assert re.findall(r"^    TOSAIC_CALL\(.*", source, re.MULTILINE) == [
        "    TOSAIC_CALL(0, model_scale(near_dtcm + 0x100, near_dtcm + 0x140, near_constants + 0x0, near_dtcm + 0x0));",
        "    TOSAIC_CALL(1, model_add(near_dtcm + 0x140, model_constant_offsets, near_dtcm + 0x0, 0, 0));",
    ]
    assert "image: int8 [8, 8], real = (q - -3) * 0.5" in (built / "kit" / "include" / "model.h").read_text()


def test_a_pointer_lies_where_calls_name_most(tmp_path):
    """Working memory of 8 KiB lies before the tensors, which an offset of 12 bits does not reach from the beginning."""
    program = two_kernels()
    first, *others = program.calls
    assert isinstance(first, KernelCall)
    large = replace(first, kernel=replace(SCALE, scratch_bytes=8 * KIB))
    firmware = build_firmware(replace(program, calls=(large, *others)), BOARD, tmp_path)
    source, samples = (tmp_path / "model.c").read_text(), random_images(2)
    assert "uint8_t *near_dtcm = self->arena_dtcm + 0x2000;" in source
    assert "model_scale(near_dtcm + 0x0, near_dtcm + 0x40, near_constants + 0x0, self->arena_dtcm + 0x0)" in source
    for (x,), outputs in zip(samples, run((tmp_path, firmware), samples).outputs, strict=True):
        for want, got in zip(expected(x), outputs, strict=True):
            np.testing.assert_array_equal(want, got)


def test_small_params_lie_together(tmp_path):
    """Those of less than a vector begin at a word, also in a recent gap before others, which begin at 16 bytes; equal
    ones lie once, large ones apart."""
    factors = [[2, 1], [1] * 20, [3, 1, 2], [2, 1], [1] * 200, [1, 2], [1] * 100, [1, 3]]
    names = ["x", *(f"t{number}" for number in range(len(factors)))]
    buffers = {name: TensorBuffer((64,), INT8) for name in names}
    calls = tuple(
        KernelCall(replace(SCALE, params=bytes(each).ljust(4, b"\0")), (names[n],), (names[n + 1],), "")
        for n, each in enumerate(factors)
    )
    program = CallSequence((Interface("x", "x"),), (Interface("y", names[-1]),), buffers, calls, {})
    made = tmp_path, build_firmware(program, BOARD, tmp_path)
    source, (samples,) = (tmp_path / "model.c").read_text(), random_images(1)
    found = re.findall(r"TOSAIC_CALL\(.*?, ([^,]*constants[^,]*|[^,]*params[^,]*),", source)
    places = ["0x0", "0x10", "0x4", "0x0", "", "0x8", "0x30", "0x94"]
    assert found == [f"near_constants + {place}" if place else "model_params_4" for place in places]
    wanted = samples[0].ravel().astype(np.int32)
    for each in factors:
        wanted = (wanted * np.tile((each + [0] * 3)[:4], 16)).astype(np.int8).astype(np.int32)
    np.testing.assert_array_equal(run(made, [[samples[0].ravel()]]).outputs[0][0], wanted)


def test_the_record_holds_the_numbers(made):
    _, firmware = made
    assert (firmware.arena_bytes, firmware.memories) == (384, {"dtcm": 384, "sram": 0})
    assert 1000 < firmware.flash_bytes < 20_000
    assert firmware.inputs[0].shape == (8, 8) and firmware.inputs[0].quantization == Quantization.per_tensor(
        "i8", 0.5, -3
    )
    assert (firmware.calls[0].params_bytes, firmware.calls[0].scratch_bytes) == (4, 256)


def test_the_library_serves_firmware_of_the_users_own(built, tmp_path):
    (tmp_path / "app.c").write_text(
        '#include "model.h"\nint main(void) { model_instance m; return model_init_static(&m) + model_invoke(&m); }'
    )
    command = [
        "arm-none-eabi-gcc",
        "-mcpu=cortex-m55",
        "-mfloat-abi=hard",
        "--specs=nosys.specs",
        f"-I{built}/kit/include",
    ]
    subprocess.run(
        [*command, tmp_path / "app.c", built / "kit" / "lib" / "libmodel.a", "-o", tmp_path / "app.elf"], check=True
    )


def test_code_that_does_not_fit_its_memory_goes_beside_the_constants(tmp_path):
    small = replace(BOARD, layout=replace(BOARD.layout, code=Memory("itcm", 0, 256)))
    firmware = build_firmware(two_kernels(), small, tmp_path)
    ((x,),) = samples = random_images(1)
    np.testing.assert_array_equal(run((tmp_path, firmware), samples).outputs[0][0], expected(x)[0])


def test_inputs_of_another_shape_are_refused(made):
    with pytest.raises(
        SimulatorError, match=r"input `image` of sample 0 is int8\[64\], and the model takes int8\[8, 8\]"
    ):
        run(made, [[np.zeros(64, np.int8)]])


def test_too_small_an_arena_is_refused(tmp_path):
    tiny = replace(BOARD, layout=replace(BOARD.layout, arena=(Memory("dtcm", 0x2001_0000, 100),)))
    with pytest.raises(OutOfMemoryError, match="call 0 needs"):
        build_firmware(two_kernels(), tiny, tmp_path)


def test_a_kernel_that_does_not_compile_is_named(tmp_path):
    program = two_kernels()
    broken = replace(program.calls[1], kernel=replace(ADD, text="no C at all"))
    with pytest.raises(BackendError, match="kernel `add` does not compile"):
        build_firmware(replace(program, calls=(program.calls[0], broken)), BOARD, tmp_path)


def with_npu() -> CallSequence:
    """x -> (NPU: y = x + weights, in its scratch) -> add -> (NPU: z = -y, bound to the buffers) -> z"""
    buffers = {name: TensorBuffer((64,), INT8) for name in ("x", "a", "b", "z")}
    copied = NpuCall(
        "plus", b"STREAM-0" * 2, bytes(range(64)), 256, 32, (Port("x", 1, 64),), (Port("a", 1, 128),), "model.py:9 conv"
    )
    bound = NpuCall("minus", b"STREAM-1" * 2, b"", 0, 0, (Port("b", 3, 0),), (Port("z", 4, 0),))
    calls = (copied, KernelCall(ADD, ("a", "a"), ("b",)), bound)
    return CallSequence((Interface("x", "x"),), (Interface("z", "z"),), buffers, calls)


def execute(number: int, regions: dict[int, bytearray]) -> None:
    assert regions[COMMAND_STREAM] == (b"STREAM-1" if number else b"STREAM-0") * 2
    if number == 0:
        assert {region: len(data) for region, data in regions.items()} == {COMMAND_STREAM: 16, 0: 64, 1: 256, 2: 32}
        sums = [(x + w) % 256 for x, w in zip(regions[1][64:128], regions[0], strict=True)]
        regions[1][128:192] = bytes(sums)
    else:
        regions[4][:] = bytes(-b % 256 for b in regions[3])


def test_npu_calls_are_executed_on_the_guests_memory(tmp_path):
    firmware = build_firmware(with_npu(), BOARD, tmp_path)
    rng = np.random.default_rng(1)
    samples = [[rng.integers(-128, 128, 64).astype(np.int8)] for _ in range(3)]
    result = run((tmp_path, firmware), samples, execute)
    for (x,), (z,) in zip(samples, result.outputs, strict=True):
        np.testing.assert_array_equal(z, (-2 * (x.astype(np.int32) + np.arange(64))).astype(np.int8))
    assert [call.processor for call in result.calls] == ["npu", "cpu", "npu"]
    assert result.instructions == result.calls[1].instructions


def test_a_failing_npu_ends_the_run_with_its_reason(tmp_path):
    firmware = build_firmware(with_npu(), BOARD, tmp_path)

    def refuse(number: int, regions: dict[int, bytearray]) -> None:
        raise ValueError(f"call {number} is not for me")

    with pytest.raises(SimulatorError, match="the NPU call failed on the host\n  because: call 0 is not for me"):
        run((tmp_path, firmware), [[np.zeros(64, np.int8)]], refuse)


def test_an_npu_call_without_an_npu(tmp_path):
    firmware = build_firmware(with_npu(), BOARD, tmp_path)
    with pytest.raises(SimulatorError, match="calls the NPU, and qemu has none"):
        run((tmp_path, firmware), [[np.zeros(64, np.int8)]])
