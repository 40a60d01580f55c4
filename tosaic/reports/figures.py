"""The figures of a report, drawn with Bokeh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bokeh.models import BasicTickFormatter, ColumnDataSource
from bokeh.palettes import Category10, Category20
from bokeh.plotting import figure

from tosaic.backends.npus import find_accelerator
from tosaic.builds.manifest import Manifest
from tosaic.reports.profile import OpProfile
from tosaic.reports.timeline import Lying, Slice

_CPU, _NPU, _WEIGHTS, _SCRATCH, _LINE = "#4c78a8", "#f58518", "#e4a853", "#b7b7b7", "#888888"
_KINDS = {"tensor": _CPU, "weights": _WEIGHTS, "scratch": _SCRATCH}
_MVE_MACS = 8
"""Of int8 a cycle: 16 lanes in two beats of two (Arm Cortex-M55 Technical Reference Manual, MVE)."""


def timeline(slices: Sequence[Slice], manifest: Manifest) -> Any:
    """When each processor works, in cycles."""
    rows = [each for each in slices if each.cycles]
    data = _columns(
        rows,
        left=lambda each: each.start,
        right=lambda each: each.start + each.cycles,
        processor=lambda each: each.processor.upper(),
        color=lambda each: _NPU if each.processor == "npu" else _CPU,
        name=lambda each: each.name,
        where=lambda each: each.where,
        cycles=lambda each: f"{each.cycles:,}",
        busy=lambda each: ", ".join(f"{part} {cycles:,}" for part, cycles in each.busy.items()),
    )
    lanes = ["NPU", "CPU"] if manifest.regions else ["CPU"]
    tips = [("op", "@name"), ("from", "@where"), ("cycles", "@cycles"), ("of these", "@busy")]
    plot = _figure(140, y_range=lanes, tooltips=tips, x_axis_label="cycles", tools="xwheel_zoom,xpan,reset,hover")
    plot.hbar("processor", left="left", right="right", height=0.7, color="color", line_color="white", source=data)
    return plot


def arena(lying: Sequence[Lying], peak: float, memory: str) -> Any:
    """What lies where in a memory, step by step."""
    shown = [each for each in lying if each.memory == memory]
    tips = [("holds", "@name"), ("kind", "@kind"), ("from", "@where"), ("bytes", "@size"), ("at", "@at")]
    plot = _figure(300, tooltips=tips, x_axis_label="step", y_axis_label=f"byte of {memory}")
    for kinds, style in (
        (("region",), {"fill_alpha": 0.08, "line_color": _NPU, "fill_color": _NPU}),
        (tuple(_KINDS), {"fill_alpha": 0.75, "line_color": "white", "fill_color": "color"}),
    ):
        drawn = [each for each in shown if each.kind in kinds]
        data = _columns(
            drawn,
            left=lambda each: each.first,
            right=lambda each: each.end,
            bottom=lambda each: each.offset,
            top=lambda each: each.offset + each.size,
            color=lambda each: _KINDS.get(each.kind, _NPU),
            name=lambda each: each.name,
            kind=lambda each: each.kind,
            where=lambda each: each.where,
            size=lambda each: f"{each.size:,}",
            at=lambda each: f"{each.offset:#x}",
        )
        if drawn:
            plot.quad("left", "right", top="top", bottom="bottom", legend_group="kind", source=data, **style)
    end = max((each.offset + each.size for each in shown), default=1)
    plot.line([peak, peak], [0, end], color="#d62728", line_dash="dashed", legend_label="the peak")
    return _legend_above(plot)


def flash(parts: Mapping[str, tuple[int, int]]) -> Any:
    """Bytes of code and of constants by kernel or region, the largest first.

    Args:
        parts: code and constants by name.
    """
    names = sorted(parts, key=lambda name: sum(parts[name]))
    data = ColumnDataSource(
        {"name": names, "code": [parts[n][0] for n in names], "constants": [parts[n][1] for n in names]}
    )
    tips = [("", "@name"), ("code", "@code{0,0} B"), ("constants", "@constants{0,0} B")]
    plot = _figure(100 + 18 * len(names), y_range=names, tooltips=tips, x_axis_label="bytes")
    plot.hbar_stack(
        ["code", "constants"], y="name", height=0.7, color=[_CPU, _WEIGHTS], source=data,
        legend_label=["code", "constants, weights, command streams"],
    )  # fmt: skip
    return _legend_above(plot)


def roofline(rows: Sequence[OpProfile], manifest: Manifest) -> Any:
    """Products a cycle over products a byte, of each op and kernel that has products: a point for each memory.

    See Williams, Waterman and Patterson, "Roofline" (2009), and for several memories Yang et al., "Hierarchical
    Roofline Analysis" (2020).
    """
    plot = _figure(
        360, x_axis_type="log", y_axis_type="log", x_axis_label="MACs a byte", y_axis_label="MACs a cycle",
        tooltips=[("op", "@name"), ("from", "@where"), ("cycles", "@cycles"), ("bound by", "@bound"),
                  ("MACs a cycle", "@speed{0.00}"), ("memory", "@memory"), ("bytes", "@bytes{0,0}")],
    )  # fmt: skip
    core = manifest.target.core
    roofs = {"cpu": float(_MVE_MACS) if core.mve else 1.0}
    if manifest.target.accelerator:
        roofs["npu"] = float(find_accelerator(manifest.target.accelerator).macs)
    points = [row for row in kernels(rows) if row.macs and row.cost]
    intensities = [row.macs / count for row in points for count in row.traffic.values() if count]
    ends = [min(intensities) / 2, max(intensities) * 2]
    colors = iter(Category10[10])
    for processor, roof in roofs.items():
        own = [row for row in points if row.processor == processor]
        if not own:
            continue
        name = processor.upper()
        plot.line(ends, [roof, roof], color=_LINE, line_width=2, legend_label=f"{name}: {roof:g} MACs a cycle")
        for memory, speed in _bandwidths(processor, manifest).items():
            data = _columns(
                [row for row in own if row.traffic.get(memory)],
                x=lambda row, memory=memory: row.macs / row.traffic[memory],
                speed=lambda row: row.macs / row.cost,
                name=lambda row: f"{row.op} {'x'.join(map(str, row.shape))}",
                where=lambda row: f"{row.where} {row.module}",
                cycles=lambda row: f"{row.cost:,}",
                bound=lambda row: row.bound,
                memory=lambda row, memory=memory: memory,
                bytes=lambda row, memory=memory: row.traffic[memory],
            )
            label, color = f"{name}: {memory}, {speed:.2g} B a cycle", next(colors)
            knee = min(max(roof / speed, ends[0]), ends[1])
            line = {"color": color, "line_dash": "dashed", "legend_label": label}
            plot.line([ends[0], knee], [speed * ends[0], speed * knee], **line)
            plot.scatter("x", "speed", size=8, color=color, alpha=0.8, source=data, legend_label=label)
    return _legend_above(plot)


def kernels(rows: Sequence[OpProfile]) -> list[OpProfile]:
    """A row for each kernel of the core, with the products of all its ops; each op of the NPU has its own."""
    found: list[OpProfile] = []
    macs: dict[str, int] = {}
    for row in rows:
        macs[row.function] = macs.get(row.function, 0) + row.macs
    seen = set()
    for row in rows:
        if row.processor == "npu":
            found.append(row)
        elif row.function not in seen:
            seen.add(row.function)
            most = max((each for each in rows if each.function == row.function), key=lambda each: each.macs)
            found.append(replace(row, op=most.op, shape=most.shape, macs=macs[row.function]))
    return found


def curves(manifest: Manifest) -> Any:
    """The best of each kernel after so many trials, relative to its first."""
    tuned = [kernel for kernel in manifest.kernels if len(kernel.curve) > 1]
    plot = _figure(
        300, x_axis_type="log", x_axis_label="trial", y_axis_label=f"{manifest.objective}, of the first trial's",
        tooltips=[("kernel", "@name"), ("trial", "@trial"), (manifest.objective, "@cost{0,0}"), ("", "@share{0.00}")],
    )  # fmt: skip
    for index, kernel in enumerate(tuned):
        points = [*kernel.curve, (max(kernel.trials, kernel.curve[-1][0]), kernel.curve[-1][1])]
        first = points[0][1]
        data = ColumnDataSource(
            {
                "trial": [trial for trial, _ in points],
                "cost": [cost for _, cost in points],
                "share": [cost / first for _, cost in points],
                "name": [kernel.task] * len(points),
            }
        )
        plot.step("trial", "share", mode="after", color=Category20[20][index % 20], line_width=2, source=data)
    return plot


def accuracy(manifest: Manifest) -> Any:
    """The SQNR of each layer in dB, in the order of the model."""
    known = [layer for layer in manifest.layers if layer.sqnr_db is not None]
    data = _columns(
        list(enumerate(known)),
        number=lambda pair: pair[0],
        db=lambda pair: pair[1].sqnr_db,
        name=lambda pair: str(pair[1]),
        where=lambda pair: pair[1].where,
    )
    tips = [("layer", "@name"), ("from", "@where"), ("SQNR", "@db{0.0} dB")]
    plot = _figure(240, tooltips=tips, x_axis_label="layer", y_axis_label="SQNR, dB")
    plot.line("number", "db", color=_LINE, source=data)
    plot.scatter("number", "db", size=7, color=_CPU, source=data)
    plot.y_range.start = 0
    return plot


def _bandwidths(processor: str, manifest: Manifest) -> dict[str, float]:
    """Bytes a cycle: of the memories that Vela assumes, from what it counts; of the core's, as the target has them."""
    if processor == "cpu":
        layout = manifest.target.layout
        used = (layout.arena[0], layout.constants)
        return {memory.name: memory.bytes_per_cycle for memory in used if memory.bytes_per_cycle}
    moved: dict[str, int] = {}
    busy: dict[str, int] = {}
    for op in (op for region in manifest.regions for op in region.ops):
        for memory, count in op.traffic.items():
            moved[memory] = moved.get(memory, 0) + count
            busy[memory] = busy.get(memory, 0) + op.busy.get(memory, 0)
    return {memory: count / busy[memory] for memory, count in moved.items() if busy[memory]}


def _columns(rows: Iterable[Any], **columns: Any) -> ColumnDataSource:
    rows = list(rows)
    return ColumnDataSource({name: [value(row) for row in rows] for name, value in columns.items()})


def _legend_above(plot: Any) -> Any:
    plot.add_layout(plot.legend[0], "above")
    plot.legend.orientation = "horizontal"
    return plot


def _figure(height: int, **options: Any) -> Any:
    tools = options.pop("tools", "wheel_zoom,pan,reset,hover")
    plot = figure(height=height, sizing_mode="stretch_width", tools=tools, toolbar_location="right", **options)
    plot.toolbar.logo = None
    for axis in plot.axis:
        if isinstance(axis.formatter, BasicTickFormatter):
            axis.formatter.use_scientific = False
    return plot
