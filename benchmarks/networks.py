"""Networks of timm and torchvision on both NPUs: `python benchmarks/networks.py`, where the two packages are installed.

Random weights, small images. Each is compiled, proven and run through the command line as a user would, and is one row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.table import tosaic

_CLASSES, _SAMPLES = 100, 8


def _network(package: str, model: str, size: int, **options: Any) -> Callable[[], tuple]:
    def make() -> tuple:
        import torch

        torch.manual_seed(0)
        if package == "timm":
            module = import_module("timm").create_model(model, pretrained=False, num_classes=_CLASSES, **options)
        else:
            module = import_module("torchvision").models.get_model(model, weights=None, num_classes=_CLASSES, **options)
        samples = [(torch.randn(1, 3, size, size),) for _ in range(_SAMPLES)]
        return module.eval(), samples[0], samples

    return make


ghostnet = _network("timm", "ghostnet_050", 96)
regnety = _network("timm", "regnety_004", 96)
deit = _network("timm", "deit_tiny_patch16_224", 96, img_size=96)
efficientnet_lite = _network("timm", "efficientnet_lite0", 96)
mobileone = _network("timm", "mobileone_s0", 96)
convnext = _network("timm", "convnext_atto", 96)
mixer = _network("timm", "mixer_s32_224", 96, img_size=96)
repvgg = _network("timm", "repvgg_a0", 96)
fbnet = _network("timm", "fbnetc_100", 96)
lcnet = _network("timm", "lcnet_050", 96)
shufflenet = _network("torchvision", "shufflenet_v2_x0_5", 96)
squeezenet = _network("torchvision", "squeezenet1_1", 96)
resnet18 = _network("torchvision", "resnet18", 96)
mnasnet = _network("torchvision", "mnasnet0_5", 96)

NETWORKS = (
    "ghostnet", "regnety", "deit", "efficientnet_lite", "mobileone", "convnext", "mixer", "repvgg", "fbnet", "lcnet",
    "shufflenet", "squeezenet", "resnet18", "mnasnet",
)  # fmt: skip


@click.command()
@click.option("--networks", default=",".join(NETWORKS), show_default=True, help="Names, separated by commas.")
@click.option("--targets", default="corstone-300,corstone-320", show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/networks"), show_default=True)
def main(networks: str, targets: str, folder: Path) -> None:
    """Print a Markdown table, a row for each network and target."""
    click.echo("| network | target | NPU regions | CPU kernels | NPU cycles | arena B | exact |")
    click.echo("|---|---|---|---|---|---|---|")
    for name in networks.split(","):
        for target in targets.split(","):
            build = folder / f"{name}-{target}"
            made = tosaic("compile", f"{__file__}:{name}", "--target", target, "-o", str(build))
            ran = tosaic("run", str(build), "--random", "1")
            regions = made["regions"]
            click.echo(
                f"| {name} | {target} | {regions['npu']} | {regions['cpu']} | {made['npu_cycles']:,} "
                f"| {made['arena_bytes']:,} | {ran['exact']} |"
            )


if __name__ == "__main__":
    main()
