"""The report in a real browser: no complaint, no network, and the figures that the build has."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from browser import show
from conftest import NETS

from tosaic.api import Build
from tosaic.reports.html_report import flash_parts
from tosaic.reports.profile import of_model
from tosaic.reports.timeline import Lying, arena, live_at_peak, slices

MOST = 3 << 20


@pytest.fixture(scope="module")
def builds(succeed, tmp_path_factory):
    """One with both processors, and one with the core alone, tuned."""
    folder = tmp_path_factory.mktemp("builds")
    mixed = NETS.with_name("mixed.py")
    succeed("compile", f"{mixed}:mixed", "--target", "corstone-300", "--exclude", "softmax", "-o", folder / "both")
    succeed("compile", f"{mixed}:mixed", "--tune-trials", 12, "--search", "random", "-o", folder / "core")
    return [Build.load(folder / name) for name in ("both", "core")]


@pytest.fixture(scope="module")
def page(tosaic, builds, tmp_path_factory):
    """Of both, side by side, with the trace of the first."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    result = tosaic(
        "report", builds[0].folder, "--compare", builds[1].folder, "-o", file, "--trace", file.with_name("trace.json")
    )
    assert result.exit_code == 0, result.output
    return file


def test_a_browser_shows_it_without_a_complaint(page):
    shown = show(page)
    assert shown.complaints == []
    assert page.stat().st_size <= MOST
    assert len(re.findall(r'<div class="bk-Figure"', shown.document)) == shown.document.count('data-root-id="')
    for number in (0, 1):
        assert f'id="ops-{number}"' in shown.document


def test_what_a_browser_complains_of_is_seen(page, tmp_path):
    broken, (head, _, _) = tmp_path / "broken.html", page.read_text().partition("<script")
    planted = '<script>no_such_function()</script><img src="http://example.com/x.png">'
    broken.write_text(f"{head}</head><body>{planted}</body></html>")
    complaints = show(broken).complaints
    assert any("no_such_function is not defined" in line for line in complaints)
    assert any("violates the following Content Security Policy" in line for line in complaints)


def test_every_op_stands_in_the_table_with_its_line(builds, page):
    text = page.read_text()
    for number, build in enumerate(builds):
        table = text.split(f'id="ops-{number}"')[1].split("</table>")[0]
        assert table.count("<tr class=") == len(of_model(build.manifest.ops)) < len(build.manifest.ops)
        assert all(op.where in table for op in build.manifest.ops)
        assert all(f"{op.npu_cycles:,}" in table for op in build.manifest.ops if op.npu_cycles)
    assert "MUL needs i8 or i16 or i32, got f32" in text.split('id="ops-0"')[1].split("</table>")[0]


def test_kernels_stand_beside_their_schedules_and_tuning_curves(builds, page):
    text = page.read_text()
    for build in builds:
        for kernel in build.manifest.kernels:
            assert kernel.symbol in text
            costs = [cost for _, cost in kernel.curve]
            assert costs == sorted(set(costs), reverse=True)
    tuned = [kernel for kernel in builds[1].manifest.kernels if kernel.trials > 1]
    assert tuned
    for kernel in tuned:
        assert kernel.curve[-1][1] == kernel.trial_cycles_with_memory


def test_the_timeline_is_the_cost_of_the_run(builds, page):
    run = builds[0].measured
    found = slices(run)
    assert [one.start + one.cycles for one in found[:-1]] == [one.start for one in found[1:]]
    spent: Counter[str] = Counter()
    for one in found:
        spent[one.processor] += one.cycles
    assert spent["cpu"] == run.board.cycles_with_memory
    assert spent["npu"] == sum(op.cycles for region in builds[0].manifest.regions for op in region.ops)
    events = json.loads(page.with_name("trace.json").read_text())["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert [(event["ts"], event["dur"], event["tid"]) for event in drawn] == [
        (one.start, one.cycles, 2 if one.processor == "npu" else 1) for one in found
    ]


def test_the_arena_is_the_memory_plan_with_what_lies_in_regions(builds):
    for build in builds:
        lying, plan = arena(build.measured), build.manifest.firmware.plan
        placed = Counter((block.memory, block.offset, block.size) for block in plan)
        assert placed <= Counter((one.memory, one.offset, one.size) for one in lying)
        regions = [one for one in lying if one.kind == "region"]
        assert bool(regions) == bool(build.manifest.regions)
        inside = [one for one in lying if one.kind == "weights"]
        for one in inside:
            (around,) = [region for region in regions if region.first <= one.first and one.end <= region.end]
            assert around.offset <= one.offset and one.offset + one.size <= around.offset + around.size
        moment, live = live_at_peak(lying)
        assert sum(one.size for one in live) >= 0.9 * build.manifest.firmware.arena_bytes
        assert all(one.first <= moment < one.end for one in live)


def test_what_overlaps_at_the_peak_counts_once():
    below = Lying("input", "tensor", "", "sram", 0, 100, 0, 2)
    over = Lying("output", "tensor", "", "sram", 0, 80, 1, 3)
    later = Lying("later", "tensor", "", "sram", 0, 120, 4, 5)
    assert live_at_peak([below, over, later]) == (4, [later])
    assert live_at_peak([below, over])[1] == [below, over] or live_at_peak([below, over])[1] == [below]


def test_flash_adds_up(builds):
    for build in builds:
        parts = flash_parts(build.measured)
        assert sum(map(sum, parts.values())) == build.manifest.firmware.flash_bytes
        assert all(parts[kernel.name][0] > 0 for kernel in build.manifest.kernels)
        assert all(parts[region.name][1] > region.constants_bytes for region in build.manifest.regions)


def test_without_bokeh_it_says_what_to_install(builds, refused, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tosaic.reports.html_report", None)
    assert "pip install tosaic[report]" in refused("report", builds[0].folder)
