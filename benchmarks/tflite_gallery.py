"""Structures of published `.tflite` files against LiteRT: `python benchmarks/tflite_gallery.py`.

It needs tensorflow, tf_keras and ai-edge-litert beside `tosaic[tflite]`. Each model of `tflite_models.py` is compiled
through the command line with `--rounding tflite`, and called on samples, one behind the other where it keeps states. A
row says how far the board is from LiteRT's reference kernels on the same samples: `equal` where no bit differs, the
steps between them where integers do, and the largest difference beside the largest result of floats.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

GALLERY = {
    "ad01": "MLPerf Tiny's autoencoder, int8, open batch",
    "kws": "MLPerf Tiny's DS-CNN, int8, open batch",
    "vww": "MLPerf Tiny's MobileNetV1 0.25, int8, open batch",
    "resnet8": "MLPerf Tiny's ResNet-8, int8, open batch",
    "mobilenet_v1": "MobileNetV1, uint8 throughout",
    "mobilenet_v1_edges": "MobileNetV1, int8 with uint8 edges",
    "mobilenet_v2": "MobileNetV2, int8",
    "mobilenet_v3": "MobileNetV3: hard swish and gates, int8",
    "efficientnet_lite": "EfficientNet-Lite, int8",
    "deeplab": "DeepLab: dilations, pooled features, resizing, int8",
    "ssd": "SSD's boxes and scores at two scales, int8",
    "posenet": "PoseNet's three heads, int8",
    "unet": "U-Net: transposed convolutions, int8",
    "style": "style transfer: mirrored edges, instance norms, int8",
    "yamnet": "YAMNet on patches of spectra, int8",
    "text": "text classification by an average of embeddings, int8",
    "micro_speech": "micro_speech, int8",
    "person_detect": "person_detect, int8",
    "hello_world": "hello_world's sine, int8",
    "magic_wand": "magic_wand, int8",
    "lstm": "keywords by two LSTMs, int8",
    "handwriting": "an LSTM forwards and one backwards, int8",
    "gru": "a GRU, unrolled, int8",
    "hotword": "two layers of SVDF, int8",
    "wake_word": "streaming convolutions with variables, int8",
    "mobilebert": "MobileBERT's block, int8",
    "transformer": "a block with layer norms and GELU, int8",
    "kws_16x8": "DS-CNN with int16 activations",
    "deeplab_16x8": "DeepLab with int16 activations",
    "custom": "an op of the application",
    "vela": "a file that Vela has compiled",
    "ad01_float": "the autoencoder in f32",
    "lstm_float": "LSTMs in f32",
    "resnet8_f16": "ResNet-8, weights in f16",
    "ad01_hybrid": "the autoencoder, weights in int8",
    "vww_hybrid": "MobileNetV1 0.25, weights in int8",
    "lstm_hybrid": "LSTMs, weights in int8",
}
Rows: TypeAlias = list[list[np.ndarray]]
_HEADER = "| file | stands for | B | target | NPU regions | CPU kernels | cycles | arena B | flash B | exact | LiteRT |"
_TO_SIGNED = 128  # u8 is compiled as i8: every stored integer less this


@click.command()
@click.option("--models", default=",".join(GALLERY), help="Names, separated by commas; default: all.")
@click.option("--targets", default="cortex-m55,corstone-300", show_default=True)
@click.option("--samples", default=8, show_default=True, help="Calls of each file.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/tflite"), show_default=True)
@click.option("--record", is_flag=True, help="Write files, samples and LiteRT's answers, as the tests have them, only.")
def main(models: str, targets: str, samples: int, folder: Path, record: bool) -> None:
    """Print a Markdown table, a row for each file and target."""
    folder.mkdir(parents=True, exist_ok=True)
    names = models.split(",")
    missing = [name for name in names if not (folder / f"{name}.tflite").exists()]
    subprocess.run([sys.executable, Path(__file__).with_name("tflite_models.py"), folder, *missing], check=True)
    if record:
        for name in names:
            _record(folder / f"{name}.tflite", samples)
        return
    click.echo(_HEADER)
    click.echo("|" + "---|" * (_HEADER.count("|") - 1))
    for name in names:
        path = folder / f"{name}.tflite"
        head = f"| {name} | {GALLERY[name]} | {path.stat().st_size:,} |"
        for target in targets.split(","):
            click.echo(f"{head} {target} | {_row(path, target, folder / f'{name}-{target}', samples)}")


def _record(path: Path, count: int) -> None:
    """Each input and output of all calls: x0, x1, ..., y0, ..."""
    arrays = {}
    for letter, rows in zip("xy", _ask_litert(path, count), strict=True):
        arrays |= {f"{letter}{number}": np.stack(column) for number, column in enumerate(zip(*rows, strict=True))}
    np.savez_compressed(path.with_suffix(".npz"), **arrays)


def _ask_litert(path: Path, count: int) -> tuple[Rows, Rows]:
    """Samples, and what LiteRT's reference kernels answer."""
    litert = import_module("ai_edge_litert.interpreter")
    net = litert.Interpreter(str(path), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
    net.allocate_tensors()
    draw, given, answers = np.random.default_rng(0), Rows(), Rows()
    for _ in range(count):
        given.append([_sample(draw, one) for one in net.get_input_details()])
        for one, array in zip(net.get_input_details(), given[-1], strict=True):
            net.set_tensor(one["index"], array)
        net.invoke()
        answers.append([net.get_tensor(one["index"]) for one in net.get_output_details()])
    return given, answers


def _sample(draw: np.random.Generator, tensor: dict[str, Any]) -> np.ndarray:
    shape, dtype, (scale, zero_point) = tensor["shape"], tensor["dtype"], tensor["quantization"]
    if dtype == np.int32:
        return draw.integers(0, 64, shape).astype(dtype)
    real = (draw.normal(0, 1.5, shape[-1]) + draw.normal(0, draw.uniform(0.2, 1.5), shape)).astype(np.float32)
    if dtype == np.float32:
        return real
    limits = np.iinfo(dtype)
    return np.clip(np.rint(real / scale) + zero_point, limits.min, limits.max).astype(dtype)


def _row(path: Path, target: str, folder: Path, count: int) -> str:
    from tosaic.api import Build
    from tosaic.runs.running import run_build

    command = ["compile", path, "--rounding", "tflite", "--target", target, "-o", folder, "--json"]
    done = subprocess.run([Path(sys.executable).with_name("tosaic"), *command], capture_output=True, text=True)
    made = json.loads(done.stdout)
    if done.returncode:
        return f"| | | | | refused | {made['error']['what']}; {made['error']['hint']} |"
    given, answers = _ask_litert(path, count)
    ran = run_build(Build.load(folder), [[_signed(array) for array in row] for row in given])
    far = [_distance(*pair) for pair in zip(_outputs(answers), _outputs(ran.board.outputs), strict=True)]
    regions, exact = made["regions"], "yes" if ran.exact else "NO"
    return (
        f"{regions['npu']} | {regions['cpu']} | {ran.board.cycles:,} | {made['arena_bytes']:,} "
        f"| {made['flash_bytes']:,} | {exact if ran.defined else 'in bounds'} | {' / '.join(far)} |"
    )


def _distance(answers: np.ndarray, outputs: np.ndarray) -> str:
    outputs = outputs.reshape(answers.shape)
    if np.array_equal(answers, outputs):
        return "equal"
    far = np.abs(answers.astype(np.float64) - outputs)
    if answers.dtype == np.float32:
        return f"{far.max():.1e} of {np.abs(answers).max():.2g}"
    return f"{int(far.max())} steps, {(far > 0).mean():.1%}"


def _outputs(rows: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Each output of all calls."""
    return [_signed(np.stack(column)) for column in zip(*rows, strict=True)]


def _signed(array: np.ndarray) -> np.ndarray:
    return (array.astype(np.int16) - _TO_SIGNED).astype(np.int8) if array.dtype == np.uint8 else array


if __name__ == "__main__":
    main()
