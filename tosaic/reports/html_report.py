"""One HTML file about a build, or two side by side, that opens without a network or a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import bokeh
from bokeh.embed import components
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, select_autoescape

from tosaic.builds.build import BuildFolder
from tosaic.builds.manifest import KernelRecord
from tosaic.reports import figures
from tosaic.reports.profile import OpProfile, of_model, profile, run_modules
from tosaic.reports.report import facts
from tosaic.reports.timeline import Lying, arena, live_at_peak, slices
from tosaic.runs.running import Run
from tosaic.support.processes import run_tool

_MOST_BARS = 30


@dataclass(frozen=True)
class Page:
    """What the template shows of a build.

    Args:
        plots: `<div>`s of figures by name.
        kernels: each with its source, the costliest first.
        live: what the arena holds when it is fullest.
    """

    build: BuildFolder
    run: Run
    facts: Sequence[tuple[str, str]]
    ops: Sequence[OpProfile]
    plots: Mapping[str, str]
    kernels: Sequence[tuple[KernelRecord, int | None, str]]
    live: Sequence[Lying]


def write_report(run: Run, file: Path, other: Run | None = None) -> None:
    """Write what a build is and what it costs.

    Args:
        run: of the build.
        other: of a build that is shown beside it.
    """
    runs = [each for each in (run, other) if each is not None]
    plots = {f"{number}.{name}": plot for number, run in enumerate(runs) for name, plot in _plots(run).items()}
    script, divs = components(plots)
    pages = [_page(run, _of(number, divs)) for number, run in enumerate(runs)]
    templates = Environment(loader=PackageLoader("tosaic.reports", "."), autoescape=select_autoescape(["html"]))
    text = templates.get_template("html_report.html").render(
        pages=pages,
        modules=[run_modules(profile(run)) for run in runs],
        compared=_compared(*pages) if other else [],
        bokeh=Resources(mode="inline", components=["bokeh"]).render(),
        bokeh_version=bokeh.__version__,
        script=script,
    )
    file.write_text(text, encoding="utf-8")


def _plots(run: Run) -> dict[str, Any]:
    manifest = run.build.manifest
    lying, rows = arena(run), profile(run)
    peak, _ = live_at_peak(lying)
    plots = {"timeline": figures.timeline(slices(run), manifest), "flash": figures.flash(flash_parts(run))}
    for memory, used in manifest.firmware.memories.items():
        if used:
            plots[f"arena {memory}"] = figures.arena(lying, peak, memory)
    if any(row.macs and row.cost for row in figures.kernels(rows)):
        plots["roofline"] = figures.roofline(rows, manifest)
    if any(len(kernel.curve) > 1 for kernel in manifest.kernels):
        plots["curves"] = figures.curves(manifest)
    if any(layer.sqnr_db is not None for layer in manifest.layers):
        plots["accuracy"] = figures.accuracy(manifest)
    return plots


def _page(run: Run, plots: Mapping[str, str]) -> Page:
    manifest = run.build.manifest
    costs = dict(zip(run.build.called, run.board.calls, strict=True))
    sources = [(kernel, costs[kernel.name].cost, _source(run.build, kernel)) for kernel in manifest.kernels]
    return Page(
        build=run.build,
        run=run,
        facts=facts(run.build),
        ops=of_model(profile(run)),
        plots=plots,
        kernels=sorted(sources, key=lambda row: -(row[1] or 0)),
        live=live_at_peak(arena(run))[1],
    )


def _source(build: BuildFolder, kernel: KernelRecord) -> str:
    """The kernel's text with those of the kernels that it calls."""
    (file,) = (build.folder / "kernels").glob(f"{kernel.symbol}.*")
    return file.read_text()


def flash_parts(run: Run) -> dict[str, tuple[int, int]]:
    """Bytes of code and of constants in the image by kernel, region, and what remains; the largest, and their rest."""
    build = run.build
    listed = run_tool("llvm-nm-22", ["--print-size", "--defined-only", build.elf]).splitlines()
    sizes = {fields[3]: int(fields[1], 16) for line in listed if len(fields := line.split()) == 4}
    calls = zip(run.build.called, build.manifest.firmware.calls, strict=True)
    symbol = build.manifest.firmware.symbol
    parts = {name: (sizes.pop(symbol(call.name), 0), call.params_bytes) for name, call in calls}
    known = sum(map(sum, parts.values()))
    parts["runtime, libraries, the simulator's main"] = (max(0, build.manifest.firmware.flash_bytes - known), 0)
    largest = sorted(parts, key=lambda name: -sum(parts[name]))
    shown = {name: parts[name] for name in largest[:_MOST_BARS]}
    if rest := [parts[name] for name in largest[_MOST_BARS:]]:
        shown[f"{len(rest)} others"] = (sum(code for code, _ in rest), sum(data for _, data in rest))
    return shown


def _compared(one: Page, other: Page) -> list[tuple[str, int | None, int | None]]:
    """The cost of each module in both builds, in the order of the first."""
    costs = []
    for page in (one, other):
        total: Counter[str] = Counter()
        for row in page.ops:
            total[row.module or row.where] += row.cost or 0
        costs.append(total)
    names = dict.fromkeys(name for pair in zip_longest(*costs) for name in pair if name is not None)
    return [(name, costs[0].get(name), costs[1].get(name)) for name in names]


def _of(number: int, divs: Mapping[str, str]) -> dict[str, str]:
    prefix = f"{number}."
    return {name.removeprefix(prefix): div for name, div in divs.items() if name.startswith(prefix)}
