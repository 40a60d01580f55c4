"""The zoo through other compilers to the same Vela: `python benchmarks/npu_routes.py executorch resnet8`.

`executorch` lowers as its own example for Ethos-U does, and `tensorflow` converts to a `.tflite` file in int8, as the
users of each do; either has to be installed, neither is a dependency. What they give to Vela is compiled as tosaic's
regions are, for the same memories, so that cycles can be compared.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import click
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.to_tflite import as_tflite
from tosaic.backends.ethos_u.accelerators import find_accelerator
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.backends.npu import NpuOptions
from tosaic.zoo import NAMES, load

ACCELERATORS = ("ethos-u55-128", "ethos-u85-256")


def by_executorch(name: str, accelerator: str, options: NpuOptions) -> Iterator[int]:
    """Vela's cycles for each part that ExecuTorch delegates."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    parts = ("backends.arm.ethosu", "backends.arm.quantizer", "exir")
    ethosu, quantizers, exir = (import_module(f"executorch.{part}") for part in parts)
    module, inputs, calibration = load(name)
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        modes = {"system_config": options.system_config, "memory_mode": options.memory_mode}
        spec = ethosu.EthosUCompileSpec(accelerator, **modes)
        spec.dump_intermediate_artifacts_to(folder)
        quantizer = quantizers.EthosUQuantizer(spec)
        quantizer.set_global(quantizers.get_symmetric_quantization_config())
        prepared = prepare_pt2e(torch.export.export(module, inputs).module(check_guards=False), quantizer)
        for batch in calibration:
            prepared(*batch)
        program = torch.export.export(convert_pt2e(prepared), inputs)
        exir.to_edge_transform_and_lower(program, partitioner=[ethosu.EthosUPartitioner(spec)]).to_executorch()
        for flatbuffer in {file.read_bytes() for file in Path(folder).rglob("*.tosa")}:  # each is dumped twice
            yield compile_region(flatbuffer, accelerator, options).cycles


def by_tensorflow(name: str, accelerator: str, options: NpuOptions) -> Iterator[int]:
    """Vela's cycles for the model as TensorFlow's converter writes it.

    Raises:
        CalledProcessError: Vela fails.
    """
    usual = find_accelerator(accelerator)
    system, memory = options.system_config or usual.system_config, options.memory_mode or usual.memory_mode
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        model = Path(folder) / "model.tflite"
        module, inputs, calibration = load(name)
        samples = [sample for (sample,) in calibration]
        model.write_bytes(as_tflite(torch.export.export(module, tuple(inputs)), samples, same=True))
        subprocess.run(
            [
                Path(sys.executable).parent / "vela", model, "--output-dir", folder,
                "--accelerator-config", accelerator, "--config", "Arm/vela.ini",
                "--system-config", system, "--memory-mode", memory,
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        (summary,) = Path(folder).glob("*_summary_*.csv")
        with summary.open() as lines:
            yield from (int(float(row["cycles_total"])) for row in csv.DictReader(lines))


ROUTES: dict[str, Callable[[str, str, NpuOptions], Iterator[int]]] = {
    "executorch": by_executorch,
    "tensorflow": by_tensorflow,
}


@click.command()
@click.argument("route", type=click.Choice(sorted(ROUTES)))
@click.argument("models", nargs=-1, type=click.Choice(NAMES))
@click.option("--accelerators", default=",".join(ACCELERATORS), help="Names, separated by commas.")
@click.option("--memory-mode", help="A section of Vela's vela.ini; default: the accelerator's usual one.")
@click.option("--system-config", help="The same.")
def main(
    route: str, models: Sequence[str], accelerators: str, memory_mode: str | None, system_config: str | None
) -> None:
    """Print Vela's cycles of each part that a route gives it."""
    warnings.simplefilter("ignore")
    for name in models or NAMES:
        for accelerator in accelerators.split(","):
            try:
                parts = list(ROUTES[route](name, accelerator, NpuOptions(memory_mode, system_config)))
                found = f"{sum(parts):,} cycles in {len(parts)} parts"
            except VelaRefusal as refusal:
                found = f"refused: {refusal.why}"
            click.echo(f"{name} on {accelerator}: {found}")


if __name__ == "__main__":
    main()
