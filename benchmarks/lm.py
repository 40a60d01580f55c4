"""What a token of a small language model costs: `python benchmarks/lm.py [--shape NAME] [--target NAME]... [--int4]`.

The decoder of `examples/story` takes one token at a time. Its weights are random here, its shape is that of a known
model: Karpathy's stories260K and stories15M, or SmolLM2-135M. `tosaic compile benchmarks/lm.py:stories260k` builds it,
and so on for each shape. With `--prefill` it has a method beside that, which takes 16 tokens at once; with `--int4` its
linear layers and its table of embeddings have weights of four bits, with `--int16` its activations have 16.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "story"))
from story import DecoderShape, LanguageModel, in_order, in_turns  # pyright: ignore[reportMissingImports]

if TYPE_CHECKING:
    import tosaic

_SAMPLES = 128
SHAPES = {
    "tiny": DecoderShape(channels=32, layers=1, heads=4, keys=2, hidden=48, tokens=64, places=32),
    "stories260k": DecoderShape(channels=64, layers=5, heads=8, keys=4, hidden=172, tokens=512, places=512),
    "stories15m": DecoderShape(channels=288, layers=6, heads=6, keys=6, hidden=768, tokens=32_000, places=256),
    "smollm2": DecoderShape(channels=576, layers=30, heads=9, keys=3, hidden=1536, tokens=49_152, places=256),
}


def decoder(shape: DecoderShape) -> tuple[nn.Module, tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """A decoder with random weights, an example of its inputs, and a text of random tokens."""
    net, tokens = _drawn(shape)
    text = in_order(tokens, shape.places)
    return net, text[0], text


def methods(shape: DecoderShape) -> tuple[dict[str, tuple], list[dict[str, tuple[Tensor, Tensor]]]]:
    """The same decoder as two methods, one of 16 tokens and one of one token, each with an example; and a text."""
    net, tokens = _drawn(shape)
    text = in_turns(tokens, shape.places)
    return {name: (net, text[0][name]) for name in text[0]}, text


def _drawn(shape: DecoderShape) -> tuple[nn.Module, list[int]]:
    torch.manual_seed(0)
    net, generator = LanguageModel(shape).eval(), torch.Generator().manual_seed(0)
    nn.init.normal_(net.embedding.weight, std=0.5)
    count = min(_SAMPLES, shape.places)
    return net, torch.randint(0, shape.tokens, (count,), generator=generator).tolist()


def tiny() -> tuple:
    return decoder(SHAPES["tiny"])


def stories260k() -> tuple:
    return decoder(SHAPES["stories260k"])


def stories15m() -> tuple:
    return decoder(SHAPES["stories15m"])


def smollm2() -> tuple:
    return decoder(SHAPES["smollm2"])


@click.command()
@click.option("--shape", type=click.Choice(list(SHAPES)), default="stories260k", show_default=True)
@click.option("--layers", type=int, help="So many layers of the shape; all without it.")
@click.option("--target", "targets", multiple=True, default=["cortex-m55"], show_default=True)
@click.option("--prefill", is_flag=True, help="With a method that takes 16 tokens at once.")
@click.option("--int4", is_flag=True, help="With weights of four bits.")
@click.option("--int16", is_flag=True, help="With activations of 16 bits.")
def report(shape: str, layers: int | None, targets: tuple[str, ...], prefill: bool, int4: bool, int16: bool) -> None:
    """Print what a token costs on each target, and what a compilation from an empty database took, as Markdown."""
    import tosaic
    from tosaic.support.garbage import collect_rarely

    collect_rarely()  # as the command line has it
    asked = SHAPES[shape]._replace(layers=layers or SHAPES[shape].layers)
    given: tuple[Any, ...] = methods(asked) if prefill else decoder(asked)
    *model, text = given
    quantization = tosaic.QuantizationOptions(
        activations="int16" if int16 else "int8", int4=("linear", "embedding") if int4 else ()
    )
    costs, stations = [], []
    for target in targets:
        with tempfile.TemporaryDirectory() as name:
            before = _cpu_seconds()
            build = tosaic.compile(
                *model,
                target=target,
                calibration=text,
                quantization=quantization,
                output=Path(name, "build"),
                tuning=tosaic.Tuning(records=Path(name, "records.db")),
            )
            stations.append((target, _cpu_seconds() - before, build.manifest.seconds))
            costs += [(target, *row) for row in _costs(build, asked.places)]
    _print_costs(costs)
    _print_stations(stations)


def _costs(build: tosaic.Build, places: int) -> Iterator[tuple[str, ...]]:
    """What a token costs at the first place, at half of them and at the last, or each method on a sample; and what the
    build takes."""
    from tosaic.reports.methods import run_methods, state_bytes

    firmware, kernels, inputs = build.manifest.firmware, build.manifest.kernels, build.samples[0].inputs
    taken = [firmware.arena_bytes, firmware.flash_bytes, state_bytes(build), len({one.symbol for one in kernels})]
    costs = []
    for place in () if firmware.methods else (0, places // 2 - 1, places - 1):
        ran = build.run(inputs[0], np.full_like(inputs[1], place))
        costs.append((f"place {place}", ran.board.cycles, ran.board.cycles_with_memory, ran.npu_cycles, ran.exact))
    if firmware.methods:
        ran = build.run(*inputs)
        for each, cost in zip(firmware.methods, run_methods(ran), strict=True):
            cycles = sum(call.cycles or 0 for call in ran.board.calls[each.first : each.end])
            costs.append((each.name, cycles, cost.cpu, cost.npu, ran.exact))
    for name, *cycles, exact in costs:
        numbers = (f"{number or 0:,}" for number in (*cycles, *taken))
        yield name, *numbers, "yes" if exact else "NO"


def _cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _print_costs(rows: list[tuple[str, ...]]) -> None:
    head = ("target", "call", "core's cycles", "with memory", "NPU's cycles", "arena B", "flash B", "states B")
    _print_table((*head, "functions", "exact"), rows)


def _print_stations(rows: list[tuple[str, float, Mapping[str, float]]]) -> None:
    """Print what compilations took, and the most memory that this process and one of its children had."""
    peaks = (resource.getrusage(who).ru_maxrss >> 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    click.echo(f"\nmost memory: {next(peaks):,} MiB here, {next(peaks):,} MiB in a child\n")
    names = list(dict.fromkeys(name for *_, seconds in rows for name in seconds))
    _print_table(
        ("target", "processor's s", "s", *names),
        [
            (target, f"{used:.0f}", f"{sum(taken.values()):.0f}", *(f"{taken.get(name, 0):.1f}" for name in names))
            for target, used, taken in rows
        ],
    )


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    click.echo("\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows)))


if __name__ == "__main__":
    report()
