"""The front of `tosaic fit` beside msf-CNN's: arena against multiply-accumulates, as a table and a picture.

tosaic fit benchmarks/fit_models.py:mobilenet_v2_035_144 --input-layout nhwc --stream-input --json > front.json
python benchmarks/fit_front.py front.json docs/images/front-mobilenet_v2.svg
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

MSF_CNN = [(181_440, 1.00), (83_133, 1.02), (63_603, 1.23), (25_803, 1.25), (15_199, 1.38)]
"""Bytes without the input image and multiply-accumulates (the evaluation's result.json in TinyPART/msf-CNN)."""
LIMITS = (1.00, 1.05, 1.15, 1.40)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _MARGIN = 640, 300, 60, 40, 20
_BYTES, _FACTORS = (12_000, 400_000), (0.98, 1.42)
_OURS, _THEIRS = "#1f5fbf", "#c2571a"

Points = Sequence[tuple[int, float]]
"""Bytes, and multiply-accumulates as a multiple of the model's."""


@click.command()
@click.argument("front", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
def main(front: Path, picture: Path) -> None:
    """Print the table of FRONT, what `tosaic fit --json` printed, and draw it into PICTURE, an SVG."""
    points = json.loads(front.read_text())["points"]
    products = min(point["products"] for point in points)
    ours = [(point["arena"], point["products"] / products) for point in points]
    click.echo("| Multiply-accumulates at most | tosaic, arena B | msf-CNN, B |\n|---|---|---|")
    for limit in LIMITS:
        click.echo(f"| {limit:.2f}x | {_least(ours, limit)} | {_least(MSF_CNN, limit)} |")
    picture.write_text("\n".join(_drawn(ours)) + "\n")


def _least(points: Points, limit: float) -> str:
    size, factor = min((size, factor) for size, factor in points if round(factor, 2) <= limit)
    return f"{size:,} ({factor:.3f}x)"


def _drawn(ours: Points) -> Iterator[str]:
    font = 'font-family="sans-serif" font-size="12"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {font}>'
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    for size in (16_000, 32_000, 64_000, 128_000, 256_000):
        x, _ = _at(size, 1)
        yield f'<path d="M{x:.0f} {_MARGIN}V{_HEIGHT - _BOTTOM}" stroke="#ddd"/>'
        yield f'<text x="{x:.0f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{size // 1000} kB</text>'
    for factor in (1.0, 1.1, 1.2, 1.3, 1.4):
        _, y = _at(_BYTES[0], factor)
        yield f'<path d="M{_LEFT} {y:.0f}H{_WIDTH - _MARGIN}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{factor:.1f}x</text>'
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">arena, without the image</text>'
    for row, (name, color, points) in enumerate((("tosaic", _OURS, ours), ("msf-CNN", _THEIRS, MSF_CNN))):
        places = [_at(*point) for point in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>' for x, y in places)
        yield f'<text x="{_WIDTH - 90}" y="{_MARGIN + 16 + 16 * row}" fill="{color}">{name}</text>'
    yield "</svg>"


def _at(size: int, factor: float) -> tuple[float, float]:
    """Where a point lies, its bytes on a logarithmic scale."""
    low, high = map(math.log, _BYTES)
    across = (math.log(size) - low) / (high - low)
    up = (factor - _FACTORS[0]) / (_FACTORS[1] - _FACTORS[0])
    return _LEFT + across * (_WIDTH - _LEFT - _MARGIN), _HEIGHT - _BOTTOM - up * (_HEIGHT - _BOTTOM - _MARGIN)


if __name__ == "__main__":
    main()
