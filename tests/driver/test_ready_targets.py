"""The targets that tosaic brings along: each as its file has it, ten of them through the whole way, and their page."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from conftest import NETS
from tosa_graphs import Graph

from benchmarks.campaigns.targets import outcome
from tosaic.backends.ethos_u.vela import vela_sections
from tosaic.backends.npu import NpuOptions
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.target import Target
from tosaic.compiler.verdicts import costs_of
from tosaic.passes.npu.costs import COSTS
from tosaic.target_files.declaration import declaration, examine
from tosaic.target_files.ready import find_target
from tosaic.target_files.schema import json_schema
from tosaic.target_files.source import READY, ready

PAGE = (Path(__file__).parents[2] / "docs" / "targets.md").read_text()
CHIPS = (
    "stm32f411", "stm32f446", "stm32f746", "stm32h743", "stm32h7a3", "stm32l4r5", "stm32u575", "stm32g0b1",
    "stm32n657", "nrf52840", "nrf5340", "nrf54l15", "rp2040", "rp2350", "ra8d1", "ra8p1", "alif-e7-he",
    "alif-e7-hp", "alif-e8-he", "alif-e8-hp", "himax-we2", "imxrt1062", "imxrt798", "psoc62", "psoc-edge-e84",
    "apollo4", "apollo510", "m55m1", "microbit-v1", "microbit-v2", "nano-33-ble", "portenta-h7", "pico",
    "pico2",
)  # fmt: skip


def test_every_ready_target_says_what_it_is_and_where_its_numbers_come_from():
    assert set(CHIPS) <= set(ready())
    for name, file in ready().items():
        declared = declaration(file)
        assert declared.target.name == name and declared.vendor and declared.title and declared.sources, name
        assert declared.target.clock, name
        assert msgspec.json.decode(msgspec.json.encode(declared.target), type=Target) == declared.target  # a manifest


def test_targets_are_listed_by_vendor(tosaic, succeed):
    listed = tosaic("targets").stdout
    assert re.search(r"micro:bit +microbit-v1 .*cortex-m0 ", listed)
    vendors = [row["vendor"] for row in succeed("targets")["targets"]]
    assert len(vendors) == len(ready()) + 3 and set(vendors) >= {"STMicroelectronics", "Raspberry Pi", "Alif", "Arm"}
    shown = tosaic("targets", "show", "stm32n657").stdout
    assert "RM0486" in shown and "unchecked" in shown and "memory.flash.latency" in shown


def test_vela_has_the_vendors_figures():
    alif = find_target("alif-e8-hp")
    assert "Alif_HP_Mram" in vela_sections(alif.vela_config)["system configuration"]
    assert "Alif_HP_Mram" not in vela_sections()["system configuration"] and NpuOptions().config == ""
    assert find_target("alif-e8-hp", accelerator="u85").system_config == "Alif_U85_Mram"
    assert find_target("alif-e8-hp", accelerator="ethos-u65-256").system_config is None


@pytest.mark.parametrize(
    "name",
    ["stm32f411", "stm32f746", "stm32h743", "stm32u575", "nrf54l15", "pico2", "ra8d1", "imxrt798"],
)
def test_a_model_for_a_ready_target(name):
    found = outcome(name, f"{NETS}:small")
    assert found.kind == "exact" and f"{name}: " in found.detail and " ms" in found.detail


@pytest.mark.parametrize("name", ["himax-we2", "alif-e8-hp"])
def test_an_npu_model_for_a_ready_target(name):
    found = outcome(name, f"{NETS}:net")
    assert found.kind == "exact" and " ms" in found.detail


@pytest.mark.parametrize(
    ("name", "runs_as"),
    [("cortex-m0", ""), ("cortex-m0plus", "microbit: its code on a cortex-m0"), ("cortex-m3", ""), ("cortex-m4", ""),
     ("cortex-m7", ""), ("cortex-m23", "mps2-an505: its code on a cortex-m33"), ("cortex-m33", ""),
     ("cortex-m52", "mps3-an547: its code on a cortex-m55"), ("cortex-m85", "mps3-an547: its code on a cortex-m55")],
)  # fmt: skip
def test_every_core_is_a_target_of_its_name(tosaic, name, runs_as, tmp_path):
    said = tosaic("compile", f"{NETS}:small", "--target", name, "-o", tmp_path / "build").stdout
    ran = tosaic("run", tmp_path / "build", "--random", 1).stdout
    assert all(("simulated on" in text) == bool(runs_as) and runs_as in text for text in (said, ran))
    assert "exact            yes" in ran


def test_a_chip_of_armv6_m_runs_on_a_cortex_m0():
    on = simulation_of(find_target("pico"))
    assert (on.machine, on.core, on.stands_in) == ("microbit", "cortex-m0", True)
    assert on.layout.memories[0].base >= 0x2000_0000


def test_the_page_has_every_key_and_what_it_says():
    assert table() in PAGE


def table() -> str:
    """The rows of the page's table of keys."""
    shapes = json_schema()["$defs"]
    tables = {"": "TargetFile", "memory.NAME.": "MemoryTable", "cache.NAME.": "CacheTable", "npu.NAME.": "NpuTable"}
    tables |= {"core.": "CoreTable", "board.": "BoardTable", "board.uart.": "UartTable", "trials.": "TrialsTable"}
    rows = []
    for prefix, name in tables.items():
        for key, shape in shapes[name]["properties"].items():
            needed = "" if key in shapes[name].get("required", ()) else ", if any"
            if "description" in shape:
                rows.append(f"| `{prefix}{key}`{needed} | {shape['description']} |")
    return "\n".join(rows) + "\n"


def test_a_file_written_by_the_page_alone(tmp_path):
    board, kit, _, npu = re.findall(r"```toml.*?\n(.*?)```", PAGE, re.DOTALL)
    assert len(board.splitlines()) <= 20
    file = tmp_path / "my-board.toml"
    file.write_text(board)
    assert not examine(file)[1] and not (READY / "my-board.toml").exists()
    found = outcome(str(file), f"{NETS}:small")
    assert found.kind == "exact"
    wrong = (("wait_states", "wait_state"), ("size = 0x0010_0000", "size = 0x1900_0000"))
    for (old, new), line in zip(wrong, re.findall(r"^my-board\.toml:\d+: .*$", PAGE, re.MULTILINE), strict=True):
        file.write_text(board.replace(old, new, 1))
        assert line.strip() in str(examine(file)[1][0])
    file.write_text(kit)
    assert declaration(file).target.layout.code.base == 0x0002_7000
    text = npu.replace('"Mine"', '"Himax_WE2"')
    file.write_text(board.replace("clock =", f"{text}clock =", 1))
    (tmp_path / "vela.ini").write_text((READY / "himax" / "vela.ini").read_text())
    assert declaration(file).target.npu_registers == 0x4014_0000


def test_forms_are_priced_under_the_targets_configuration():
    assert costs_of(find_target("corstone-300")) == "ethos-u55-128"
    graph = Graph()
    weights = np.random.default_rng(0).integers(-127, 128, (256, 1, 1, 256))
    y = graph.conv2d(graph.input((1, 4, 4, 256)), weights, np.zeros(256, int), input_zero=4)
    module = graph.module(graph.requantize(y, "i8", 0.001))
    fast, slow = (COSTS[costs_of(find_target(name))](module) for name in ("alif-e8-hp", "himax-we2"))
    assert fast is not None and slow is not None and slow > 4 * fast  # bytes of weights: 0.97 a cycle, and 0.125
