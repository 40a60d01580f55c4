"""What a token of a small language model costs: `python benchmarks/lm.py [--target NAME]... [--int4]`.

The decoder of `examples/story` takes one token at a time. Its weights are random here, its shape is that of Karpathy's
stories260K: 64 channels, 5 layers, 8 heads of 4 keys, 512 tokens, 512 places. `tosaic compile
benchmarks/lm.py:stories260k` builds it, `benchmarks/lm.py:tiny` a small one. With `--prefill` it has a method beside
that, which takes 16 tokens at once; with `--int4` its linear layers have weights of four bits.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "story"))
from story import DecoderShape, LanguageModel, in_order, in_turns  # pyright: ignore[reportMissingImports]

if TYPE_CHECKING:
    import tosaic

_SAMPLES = 128
STORIES_260K = DecoderShape(channels=64, layers=5, heads=8, keys=4, hidden=172, tokens=512, places=512)
TINY = DecoderShape(channels=32, layers=1, heads=4, keys=2, hidden=48, tokens=64, places=32)


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


def stories260k() -> tuple:
    return decoder(STORIES_260K)


def tiny() -> tuple:
    return decoder(TINY)


@click.command()
@click.option("--target", "targets", multiple=True, default=["cortex-m55"], show_default=True)
@click.option("--small", is_flag=True, help="The small decoder.")
@click.option("--prefill", is_flag=True, help="With a method that takes 16 tokens at once.")
@click.option("--int4", is_flag=True, help="With weights of four bits in its linear layers.")
def report(targets: tuple[str, ...], small: bool, prefill: bool, int4: bool) -> None:
    """Print what a token costs on each target, as Markdown."""
    import tosaic

    quantization = tosaic.QuantizationOptions(int4=("linear",) if int4 else ())

    if prefill:
        _report_methods(targets, TINY if small else STORIES_260K, quantization)
        return
    net, example, text = decoder(TINY if small else STORIES_260K)
    click.echo("| target | core's cycles | with memory | NPU's cycles | arena B | flash B | states B | exact |")
    click.echo("|---|---|---|---|---|---|---|---|")
    for target in targets:
        with tempfile.TemporaryDirectory() as name:
            build = tosaic.compile(
                net, example, target=target, calibration=text, quantization=quantization, output=Path(name) / "build"
            )
            ran, firmware = build.run(), build.manifest.firmware
            states = sum(value.numel() for name, value in net.named_buffers() if name.endswith((".k", ".v")))
            click.echo(
                f"| {target} | {ran.board.cycles:,} | {ran.board.cycles_with_memory:,} | {ran.npu_cycles or 0:,} "
                f"| {firmware.arena_bytes:,} | {firmware.flash_bytes:,} | {states:,} | {'yes' if ran.exact else 'NO'} |"
            )


def _report_methods(targets: tuple[str, ...], shape: DecoderShape, quantization: tosaic.QuantizationOptions) -> None:
    import tosaic
    from tosaic.reports.methods import run_methods, state_bytes

    entry_points, text = methods(shape)
    click.echo(
        "| target | method | core's cycles | with memory | NPU's cycles | arena B | flash B | states B | exact |"
    )
    click.echo("|---|---|---|---|---|---|---|---|---|")
    for target in targets:
        with tempfile.TemporaryDirectory() as name:
            build = tosaic.compile(
                entry_points, target=target, calibration=text, quantization=quantization, output=Path(name) / "build"
            )
            ran, firmware = build.run(), build.manifest.firmware
            for method, cost in zip(firmware.methods, run_methods(ran), strict=True):
                core = sum(call.cycles or 0 for call in ran.board.calls[method.first : method.end])
                click.echo(
                    f"| {target} | {method.name} | {core:,} | {cost.cpu or 0:,} | {cost.npu:,} "
                    f"| {firmware.arena_bytes:,} | {firmware.flash_bytes:,} | {state_bytes(build):,} "
                    f"| {'yes' if ran.exact else 'NO'} |"
                )


if __name__ == "__main__":
    report()
