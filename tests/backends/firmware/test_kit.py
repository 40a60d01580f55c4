"""The folder that ships: two models in an image by gcc and clang, CMake, CMSIS-Pack, Zephyr, drivers, self-test."""

from __future__ import annotations

import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from test_build import BOARD, OFFSETS, QEMU, SCALE, execute, expected, random_images, two_kernels, with_npu
from two_models import COMPILERS, build_app, run_app

from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.kernel import License
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.build import Library, SelfTest, build_firmware
from tosaic.backends.firmware.kit import CYCLES_PER_NPU_CALL
from tosaic.backends.firmware.program import Copy, Interface
from tosaic.backends.firmware.records import Firmware
from tosaic.backends.firmware.stack import stack_bound
from tosaic.backends.target import Target
from tosaic.support.errors import Error
from tosaic.support.processes import run_tool

THRICE = replace(SCALE, text=SCALE.text.replace("params[i % 4]", "3"))


def built(folder: Path, name: str, program, outputs, states=()) -> tuple[Path, Firmware]:
    (images,) = random_images(1)
    selftest = SelfTest(tuple(images), outputs(images[0]))
    return folder / name, build_firmware(program, BOARD, folder / name, name=name, selftest=selftest, states=states)


def other_program():
    """Of the same kernels' names, and other code: it keeps a sum, which begins with `OFFSETS`."""
    program = two_kernels()
    return replace(
        program,
        buffers={**program.buffers, "offsets": replace(program.buffers["offsets"], value=None)},
        calls=(replace(program.calls[0], kernel=THRICE), program.calls[1]),
        states=(Interface("sum", "offsets"),),
        copies=(Copy("y", "offsets", 2),),
    )


def other_expected(x: np.ndarray, before: np.ndarray = OFFSETS) -> tuple[np.ndarray, np.ndarray]:
    scaled = (x.ravel().astype(np.int32) * 3).astype(np.int8)
    return (scaled + before).astype(np.int8), scaled


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return (
        built(folder, "kws", two_kernels(), expected),
        built(folder, "vad", other_program(), other_expected, [OFFSETS]),
    )


@pytest.fixture(scope="module", params=COMPILERS)
def app(request, models, tmp_path_factory) -> Path:
    return build_app(request.param, models, tmp_path_factory.mktemp("app") / "build")


def test_two_models_in_an_image_of_ones_own(app, models):
    images = random_images(6)
    samples = [(images[i], images[i + 1]) for i in range(5)]
    outputs, facts = run_app(app, QEMU, [firmware for _, firmware in models], samples)
    kept = OFFSETS
    for ((first,), (second,)), (ours, theirs) in zip(samples, outputs, strict=True):
        np.testing.assert_array_equal(ours, expected(first))
        np.testing.assert_array_equal(theirs, other_expected(second, kept))
        kept = theirs[0]
    assert (facts.null_arena, facts.odd_arena) == (-7, -7)
    assert (facts.first_selftest, facts.second_selftest) == (0, 0)
    for (_, firmware), used in zip(models, (facts.first_stack, facts.second_stack), strict=True):
        assert firmware.stack_bytes is not None and 0 < used <= firmware.stack_bytes <= used + 32


def test_the_stack_of_a_model_for_an_npu(models, tmp_path):
    """What ships counts its small driver; in an image for a simulator, the bridge to the host stands in its place."""

    def negated(x: np.ndarray) -> tuple[np.ndarray, ...]:
        return ((-2 * (x.ravel().astype(np.int32) + np.arange(64))).astype(np.int8),)

    npu = built(tmp_path, "npu", with_npu(), negated)
    driver = [npu[0] / "kit" / "lib" / "libtosaic_npu.a", toolchain.runtime_object("npu_bridge.c", CORE)]
    elf = build_app("gcc", (models[0], npu), tmp_path / "app", driver)
    images = random_images(2)
    _, facts = run_app(elf, QEMU, [models[0][1], npu[1]], [(images[0], images[1])], execute)
    assert facts.second_selftest == 0
    bound = stack_bound(elf, "npu_invoke", CORE.name)
    assert bound is not None and npu[1].stack_bytes is not None
    assert npu[1].stack_bytes < facts.second_stack <= bound <= facts.second_stack + 32


def test_no_heap(app):
    names = set(run_tool("llvm-nm-22", ["--format=just-symbols", app]).split())
    assert {"kws_invoke", "vad_invoke"} <= names
    assert not names & {"malloc", "free", "calloc", "realloc", "_malloc_r", "_free_r", "_sbrk", "sbrk"}


def test_every_symbol_begins_with_the_name(models):
    for folder, firmware in models:
        listed = run_tool("llvm-nm-22", ["--extern-only", folder / "kit" / "lib" / f"lib{firmware.name}.a"])
        symbols = re.findall(r" [A-Z] (\w+)$", listed, re.MULTILINE)
        assert len(symbols) > 8
        theirs = {symbol for symbol in symbols if not symbol.startswith(f"{firmware.name}_")}
        assert theirs <= {"memcpy", "memcmp", "memset", "memmove"}


def test_the_runtime_beside_kernels_and_weights_is_small(tmp_path):
    build_firmware(with_npu(), BOARD, tmp_path, name="kws")
    parts = [tmp_path / "objects" / "kws.o", tmp_path / "kit" / "lib" / "libtosaic_npu.a"]
    listed = run_tool("arm-none-eabi-size", parts).splitlines()[1:]
    sizes = [line.split() for line in listed if "npu_counters" not in line]  # linked where it is called
    assert len(sizes) == len(listed) - 1
    assert sum(int(text) + int(data) + int(bss) for text, data, bss, *_ in sizes) <= 1136


def test_arenas_take_no_room_in_the_image(models):
    folder, _ = models[0]
    sections = run_tool("llvm-readelf-22", ["-S", folder / "objects" / "kws_static.o"])
    assert re.search(r"\.bss\.tosaic\.dtcm\s+NOBITS", sections)


def test_an_image_without_the_selftest_holds_none_of_it(models):
    folder, _ = models[0]
    assert "selftest" not in run_tool("llvm-nm-22", [folder / "model.elf"])


def test_the_selftest_finds_a_wrong_model(models, tmp_path):
    folder = tmp_path / "models"
    wrong = built(folder, "kws", other_program(), expected, [OFFSETS])
    app = build_app("gcc", (wrong, models[1]), tmp_path / "app")
    _, facts = run_app(app, QEMU, [wrong[1], models[1][1]], [(*random_images(1), *random_images(1))])
    assert (facts.first_selftest, facts.second_selftest) == (-8, 0)


@pytest.mark.parametrize(
    "name, why",
    [("3d", "C symbols"), ("a-b", "C symbols"), ("string", "header string.h"), ("tosaic", "header tosaic.h")],
)
def test_a_name_that_no_model_can_have(tmp_path, name, why):
    with pytest.raises(Error, match=why):
        build_firmware(two_kernels(), BOARD, tmp_path / "build", name=name)


def test_licenses_of_what_is_linked_are_listed(tmp_path):
    text = tmp_path / "LICENSE"
    text.write_text("do as you like")
    (tmp_path / "theirs.c").write_text("int theirs(int x) { return x; }")
    toolchain.compile_c(tmp_path / "theirs.c", tmp_path / "theirs.o", CORE)
    run_tool("llvm-ar-22", ["rcs", tmp_path / "theirs.a", tmp_path / "theirs.o"])
    calling = replace(
        SCALE, text="int theirs(int);" + SCALE.text.replace("x[i]", "theirs(x[i])"), libraries=("theirs",)
    )
    program = two_kernels()
    program = replace(program, calls=(replace(program.calls[0], kernel=calling), program.calls[1]))
    libraries = {"theirs": Library(tmp_path / "theirs.a", (License("Theirs", "MIT", text),))}
    firmware = build_firmware(program, BOARD, tmp_path / "build", libraries=libraries)
    assert firmware.licenses == {"Theirs": "MIT"}
    assert (tmp_path / "build" / "kit" / "LICENSES" / "Theirs.txt").read_text() == "do as you like"
    assert "model_theirs" in run_tool("llvm-nm-22", [tmp_path / "build" / "model.elf"])


def test_the_pack_names_files_that_are_there(tmp_path):
    build_firmware(with_npu(), BOARD, tmp_path, name="kws")
    kit = tmp_path / "kit"
    pack = ElementTree.parse(kit / "tosaic.kws.pdsc").getroot()
    assert [pack.findtext(tag) for tag in ("vendor", "name")] == ["tosaic", "kws"]
    conditions = {each.get("id"): each[0].attrib for each in pack.iter("condition")}
    assert conditions == {"cortex-m55": {"Dcore": "Cortex-M55"}}
    components = list(pack.iter("component"))
    assert [(each.get("Csub"), each.get("Cvariant")) for each in components] == [
        ("kws", None), ("kws NPU", "Polling"), ("kws NPU", "Ethos-U core driver")
    ]  # fmt: skip
    assert all(each.get("condition") in conditions for each in components)
    files = [each.attrib for each in pack.iter("file")]
    assert len(files) == 5 and all((kit / each["name"]).exists() for each in files)


def test_the_zephyr_module(models, tmp_path):
    """Its CMake file, included as Zephyr does, with Zephyr's functions as CMake's own."""
    build_firmware(with_npu(), BOARD, tmp_path / "npu", name="npu")
    module = (tmp_path / "npu" / "kit" / "zephyr" / "module.yml").read_text()
    assert module == "name: npu\nbuild:\n  cmake: zephyr\n  kconfig: zephyr/Kconfig\n"
    kconfig = (tmp_path / "npu" / "kit" / "zephyr" / "Kconfig").read_text()
    assert re.findall(r"^config (\w+)", kconfig, re.MULTILINE) == ["NPU", "NPU_ETHOS_U", "NPU_NPU"]
    project = tmp_path / "zephyr"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(f"""
        cmake_minimum_required(VERSION 3.20)
        project(zephyr NONE)
        function(zephyr_include_directories)
          message("include ${{ARGN}}")
        endfunction()
        function(zephyr_link_libraries)
          message("link ${{ARGN}}")
        endfunction()
        set(CONFIG_NPU y)
        set(CONFIG_NPU_ETHOS_U y)
        add_subdirectory({tmp_path / "npu" / "kit" / "zephyr"} npu)
        add_subdirectory({models[0][0] / "kit" / "zephyr"} kws)
    """)
    done = subprocess.run(["cmake", "-S", project, "-B", project / "b"], capture_output=True, text=True, check=True)
    named = [Path(line.split()[1]) for line in done.stderr.splitlines() if line.startswith(("include", "link"))]
    assert [path.resolve().name for path in named] == ["include", "libnpu.a", "libtosaic_ethosu.a"]
    assert all(path.exists() for path in named)


MAIN = """
#include "npu.h"
#include "semihosting.h"
DRIVER
int main(void)
{
    npu_instance model;
    npu_init_static(&model);
    host_file inputs = host_open("inputs.bin", HOST_READ), outputs = host_open("outputs.bin", HOST_WRITE);
    host_read(inputs, model.inputs[0], NPU_INPUT_x_BYTES);
    int status = npu_invoke(&model);
    host_write(outputs, &status, sizeof status);
    host_write(outputs, model.outputs[0], NPU_OUTPUT_z_BYTES);
    return 0;
}
"""
# The core driver's API, with the simulator's bridge behind it.
ARMS_DRIVER = """
struct ethosu_driver { int reserved; };
static struct ethosu_driver driver;
struct ethosu_driver *ethosu_reserve_driver(void) { driver.reserved++; return &driver; }
void ethosu_release_driver(struct ethosu_driver *d) { d->reserved--; }
int ethosu_invoke_v3(struct ethosu_driver *d, const void *payload, const int bytes, uint64_t *const base,
                     const size_t *size, const int bases, void *user)
{
    static uint32_t number;
    tosaic_npu_call call = {.number = number++, .command_stream = (const char *)payload + 16,
                            .command_stream_bytes = bytes - 16};
    int status = 1;
    if (d != &driver || d->reserved != 1 || bases != 8 || user || *(const uint32_t *)payload != 0x31504f43)
        return -1;
    for (int i = 0; i < bases; i++) {
        call.regions[i].base = (void *)(uint32_t)base[i];
        call.regions[i].bytes = size[i];
    }
    return tosaic_npu_take_over(&call, &status) ? status : -1;
}
"""
PATIENCE = "int tosaic_npu_expired(uint32_t polls) { return polls == 1000; }"


def npu_app(folder: Path, driver: str, archive: str, *objects: Path) -> Path:
    program = with_npu()
    header = struct.pack("<4sIII", b"COP1", 0, 0, 0)
    calls = tuple(replace(call, header=header) if hasattr(call, "header") else call for call in program.calls)
    build_firmware(replace(program, calls=calls), BOARD, folder, name="npu")
    (folder / "app.c").write_text(MAIN.replace("DRIVER", driver))
    toolchain.compile_c(folder / "app.c", folder / "app.o", CORE, f"-I{folder / 'kit' / 'include'}")
    libraries = [folder / "kit" / "lib" / name for name in ("libnpu.a", archive)]
    linked = [*toolchain.runtime_objects(CORE), folder / "app.o", *objects, *libraries]
    toolchain.link(linked, folder / "model.ld", folder / "app.elf", CORE)
    return folder / "app.elf"


def test_npu_calls_through_arms_driver(tmp_path):
    bridge = toolchain.runtime_object("npu_bridge.c", CORE)
    elf = npu_app(tmp_path, ARMS_DRIVER, "libtosaic_ethosu.a", bridge)
    x = np.random.default_rng(1).integers(-128, 128, 64).astype(np.int8)
    done = QEMU.run(elf, {"inputs.bin": x.tobytes()}, npu=execute, count=False).check("the app")
    status, z = done.files["outputs.bin"][:4], np.frombuffer(done.files["outputs.bin"][4:], np.int8)
    assert status == bytes(4)
    np.testing.assert_array_equal(z, (-2 * (x.astype(np.int32) + np.arange(64))).astype(np.int8))


FINISHED = """
#include "tosaic.h"
uint32_t registers[64];
__asm__(".global tosaic_npu_address\\n.section .rodata.address,\\"a\\"\\n.align 2\\n"
        "tosaic_npu_address: .word registers\\n.text\\n");
int main(void)
{
    tosaic_npu_call call = {.command_stream = registers};
    for (int i = 0; i < 5; i++) {
        call.regions[i].base = registers;
        call.regions[i].bytes = 16;
    }
    registers[1] = 0x22; /* STATUS: end reached, interrupt raised */
    __asm__ volatile("mov r9, r9" ::: "memory");
    int status = tosaic_npu_invoke(&call);
    __asm__ volatile("mov r10, r10" ::: "memory");
    return status || registers[2] != 2;
}
"""


def test_a_call_of_the_npu_takes_what_placement_counts_with(tmp_path):
    """The application's own address of the registers holds; behind it lies memory of an NPU that has finished."""
    build_firmware(with_npu(), BOARD, tmp_path, name="npu")
    (tmp_path / "app.c").write_text(FINISHED)
    toolchain.compile_c(tmp_path / "app.c", tmp_path / "app.o", CORE, f"-I{tmp_path / 'kit' / 'include'}")
    linked = [*toolchain.runtime_objects(CORE), tmp_path / "app.o", tmp_path / "kit" / "lib" / "libtosaic_npu.a"]
    toolchain.link(linked, tmp_path / "model.ld", tmp_path / "app.elf", CORE)
    (cost,) = QEMU.run(tmp_path / "app.elf", {}).check("the app").costs
    assert cost.cycles == pytest.approx(CYCLES_PER_NPU_CALL - 22 * 10, rel=0.1)


# An NPU of memory that has finished; what the driver wrote there, and how often it called the hooks, are the outputs.
HOOKED = """
#include "npu.h"
#include "semihosting.h"
uint32_t registers[64] __attribute__((aligned(16))), calls[4];
__asm__(".global tosaic_npu_address\\n.section .rodata.address,\\"a\\"\\n.align 2\\n"
        "tosaic_npu_address: .word registers\\n.text\\n");
void tosaic_npu_power(int on) { calls[on ? 0 : 1]++; }
void tosaic_npu_clean(const void *start, uint32_t bytes) { (void)start; calls[2] += bytes; }
void tosaic_npu_invalidate(void *start, uint32_t bytes) { (void)start; calls[3] += bytes; }
int main(void)
{
    npu_instance model;
    registers[1] = 0x22;
    npu_init_static(&model);
    int status = npu_invoke(&model);
    host_file outputs = host_open("outputs.bin", HOST_WRITE);
    host_write(outputs, &status, sizeof status);
    host_write(outputs, registers, sizeof registers);
    host_write(outputs, calls, sizeof calls);
    return 0;
}
"""


def written_by(source: str, folder: Path, target: Target) -> bytes:
    """The outputs of an application that runs a model with a target's driver."""
    build_firmware(with_npu(), target, folder, name="npu")
    (folder / "app.c").write_text(source)
    toolchain.compile_c(folder / "app.c", folder / "app.o", CORE, f"-I{folder / 'kit' / 'include'}")
    libraries = [folder / "kit" / "lib" / name for name in ("libnpu.a", "libtosaic_npu.a")]
    linked = [*toolchain.runtime_objects(CORE), folder / "app.o", *libraries]
    toolchain.link(linked, folder / "model.ld", folder / "app.elf", CORE)
    return QEMU.run(folder / "app.elf", {}, count=False).check("the app").files["outputs.bin"]


def hooked(folder: Path, target: Target) -> tuple[int, np.ndarray, np.ndarray]:
    """Status, registers and counts of the hooks of an invocation with a target's driver."""
    written = np.frombuffer(written_by(HOOKED, folder, target), "<u4")
    return int(written[:1].view("<i4")[0]), written[1:65], written[65:]


def test_the_driver_asks_the_target_for_ports_and_addresses(tmp_path):
    status, registers, calls = hooked(tmp_path / "usual", BOARD)
    used = registers[0x80 // 4 :: 2][:5]
    assert status == 0 and list(calls[:2]) == [2, 2] and calls[2] == calls[3] > 0
    assert used[0] >> 24 == 0x60 and all(base >> 16 == 0x2001 for base in used[1:] if base)
    assert registers[0x3C // 4] == 0 and registers[0x1C // 4] == 3  # all of the last call's regions in the arena
    lie = BOARD.layout
    dtcm = replace(lie.arena[0], npu_base=0x5081_0000, npu_port="ext")
    moved = replace(lie, arena=(dtcm, *lie.arena[1:]), constants=replace(lie.constants, npu_port="sram"))
    status, registers, _ = hooked(tmp_path / "said", replace(BOARD, layout=moved))
    assert status == 0 and all(base >> 16 == 0x5081 for base in registers[0x80 // 4 :: 2][1:5] if base)
    assert registers[0x3C // 4] > 3 and registers[0x1C // 4] == 0
    assert registers[0x40 // 4] == registers[0x4C // 4] == 0x0F1F_0000


def test_the_driver_sets_the_ports_of_a_u85(tmp_path):
    status, registers, _ = hooked(tmp_path, replace(BOARD, accelerator="ethos-u85-256"))
    assert status == 0 and list(registers[0x40 // 4 : 0x58 // 4]) == [0, 0, 0, 4, 0x1F3F, 0x1F3F]


def test_memory_that_the_npu_does_not_reach_is_a_status(tmp_path):
    lie = BOARD.layout
    alone = replace(lie, arena=(replace(lie.arena[0], tightly_coupled=True), *lie.arena[1:]))
    status, registers, calls = hooked(tmp_path, replace(BOARD, layout=alone))
    assert status == -9 and registers[0x08 // 4] == 0 and list(calls[:2]) == [1, 1]


# QEMU has no data cache to turn on: the system control block is memory, and a write to it the last line's address.
MAINTAINED = """
#include "tosaic.h"
uint32_t scb[256];
static uint8_t memory[4096] __attribute__((aligned(32)));
int main(void)
{
    for (int on = 0; on < 2; on++) {
        scb[0x14 / 4] = on << 16;
        scb[0x7C / 4] = 3 << 16; /* lines of 8 words */
        __asm__ volatile("mov r9, r9" ::: "memory");
        tosaic_npu_clean(memory + 4, sizeof memory - 8);
        __asm__ volatile("mov r10, r10\\n\\tmov r9, r9" ::: "memory");
        tosaic_npu_invalidate(memory, sizeof memory);
        __asm__ volatile("mov r10, r10" ::: "memory");
        if (!on && (scb[0x268 / 4] || scb[0x25C / 4]))
            return 1;
    }
    return scb[0x268 / 4] != (uint32_t)(memory + 4096 - 32) || scb[0x25C / 4] != (uint32_t)(memory + 4096 - 32);
}
"""


def test_caches_are_maintained_line_by_line_where_they_are_on(tmp_path):
    (tmp_path / "scb.h").write_text("#include <stdint.h>\nextern uint32_t scb[];\n#define SCB_BASE ((uint32_t)scb)\n")
    build_firmware(with_npu(), BOARD, tmp_path, name="npu")
    (tmp_path / "app.c").write_text(MAINTAINED)
    toolchain.compile_c(tmp_path / "app.c", tmp_path / "app.o", CORE, f"-I{tmp_path / 'kit' / 'include'}")
    options = ("-include", str(tmp_path / "scb.h"), "-DTOSAIC_NPU_GENERATION=55")
    toolchain.compile_c(toolchain.SOURCES / "npu.c", tmp_path / "npu.o", CORE, *options)
    linked = [*toolchain.runtime_objects(CORE), *(tmp_path / name for name in ("app.o", "npu.o"))]
    toolchain.link(
        [*linked, tmp_path / "kit" / "lib" / "libtosaic_npu.a"], tmp_path / "model.ld", tmp_path / "app.elf", CORE
    )
    off, _, clean, invalidate = (one.instructions for one in QEMU.run(tmp_path / "app.elf", {}).check("the app").costs)
    assert off < 20 and 128 * 2 < clean <= invalidate + 8 < 128 * 8  # 128 lines


def test_registers_lie_where_the_target_says(tmp_path):
    build_firmware(with_npu(), replace(BOARD, npu_registers=0x4904_2000), tmp_path, name="npu")
    archive = tmp_path / "kit" / "lib" / "libtosaic_npu.a"
    assert "00200449" in run_tool("arm-none-eabi-objdump", ["-s", archive])


# The same, with a performance monitor at `PMU`, whose counters stand still.
COUNTED = """
#include "npu.h"
#include "semihosting.h"
uint32_t registers[0x1400 / 4] __attribute__((aligned(16)));
__asm__(".global tosaic_npu_address\\n.section .rodata.address,\\"a\\"\\n.align 2\\n"
        "tosaic_npu_address: .word registers\\n.text\\n");
static host_file outputs;
static void counted(const tosaic_npu_counts *counts) { host_write(outputs, counts, sizeof *counts); }
int main(void)
{
    npu_instance model;
    registers[1] = 0x22;
    registers[(PMU + 0x1A0) / 4] = 7000;
    registers[(PMU + 0x1A4) / 4] = 1;
    for (int i = 0; i < 4; i++)
        registers[(PMU + 0x300) / 4 + i] = 10 + i;
    npu_init_static(&model);
    outputs = host_open("outputs.bin", HOST_WRITE);
    tosaic_npu_count(counted);
    int status = npu_invoke(&model);
    host_write(outputs, registers, sizeof registers);
    return status;
}
"""


@pytest.mark.parametrize(
    "accelerator, page, events",
    [("ethos-u55-128", 0, [0x23, 0x30, 0x82, 0x182]), ("ethos-u85-256", 0x1000, [0, 0, 0, 0])],
)
def test_the_driver_tells_what_the_npu_counted(tmp_path, accelerator, page, events):
    written = written_by(f"#define PMU {page}\n{COUNTED}", tmp_path, replace(BOARD, accelerator=accelerator))
    rows, registers = list(struct.iter_unpack("<I4xQ4I", written[:-0x1400])), np.frombuffer(written[-0x1400:], "<u4")
    assert rows == [(number, 7000 + (1 << 32), 10, 11, 12, 13) for number in (0, 2)]
    assert list(registers[(page + 0x380) // 4 :][:4]) == events
    assert [registers[(page + offset) // 4] for offset in (0x180, 0x184, 0x1A8)] == [0, 0x8000_000F, 0x11]


def test_an_npu_that_never_answers_is_a_status(tmp_path):
    """The board's memory map has the NPU's place, and nothing there."""
    elf = npu_app(tmp_path, PATIENCE, "libtosaic_npu.a")
    done = QEMU.run(elf, {"inputs.bin": bytes(64)}, count=False).check("the app")
    assert struct.unpack("<i", done.files["outputs.bin"][:4]) == (-6,)
