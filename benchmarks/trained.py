"""Trained networks that packages ship, against the packages' own runtimes: `python benchmarks/trained.py`.

It needs what it is asked for: pymicro-wakeword with ai-edge-litert and tosa-converter-for-tflite; silero-vad; magika
and basic-pitch with onnxruntime and onnx. Each network is compiled through the command line and called on samples that
it answers with varied results, one behind the other where it keeps states. A row says how far the board is from the
runtime on the same samples, `equal` where no bit differs; where floats are left, compiling holds the board to TOSA's
bounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.table import tosaic

if TYPE_CHECKING:
    from torch import nn

Samples: TypeAlias = list[np.ndarray]
_HEADER = (
    "| network | target | calls | NPU regions | CPU kernels | instructions | cycles | NPU cycles | arena B | flash B "
    "| exact | dB |"
)
_WAKE_WORDS = ("alexa", "hey_jarvis", "hey_mycroft", "okay_nabu")
_RATE, _CHUNK, _CONTEXT = 16_000, 512, 64
_BYTES, _LEAST_BYTES = 1024, 400  # of each end of a file, of a file
_WINDOW = 43_844  # samples that basic-pitch takes
_SPECTRA = (40, 3, 40)  # calls, spectra a call, their channels
_FIRST, _TRIES, _LOUD = 300, 1000, 200


@dataclass(frozen=True)
class Trained:
    """A trained network.

    Args:
        model: what the command line calls MODEL.
        samples: the inputs of each call.
        answers: what the package's runtime gives, an array for each output with the calls along its first axis.
        options: further ones of the command line.
    """

    model: str
    samples: Samples
    answers: list[np.ndarray]
    options: tuple[str, ...] = ()


def _file(package: str, path: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise click.ClickException(f"{package} is not installed")
    return Path(found.origin).parent / path


def _patterns(draw: np.random.Generator) -> np.ndarray:
    """Smooth spectrograms over all calls: noise on a coarse grid, and lines between."""
    calls, spectra, channels = _SPECTRA
    times, places = np.linspace(0, calls * spectra / 6, calls * spectra), np.linspace(0, 9, channels)
    coarse = draw.normal(size=(calls * spectra // 6 + 1, 10))
    rows = np.stack([np.interp(times, np.arange(len(coarse)), column) for column in coarse.T], 1)
    return np.stack([np.interp(places, np.arange(10), row) for row in rows])


def _wake_word(name: str) -> Trained:
    """A streaming network for one wake word; the spectrograms are what a search found it to take for that word."""
    path = _file("pymicro_wakeword", f"models/{name}.tflite")
    interpreter = import_module("ai_edge_litert.interpreter").Interpreter

    def heard(spectra: np.ndarray) -> tuple[Samples, np.ndarray]:
        calls = list(spectra.clip(-128, 127).round().astype(np.int8).reshape(-1, 1, *_SPECTRA[1:]))
        net, answers = interpreter(str(path)), []  # a new one: nothing else resets its states
        net.allocate_tensors()
        for call in calls:
            net.set_tensor(net.get_input_details()[0]["index"], call)
            net.invoke()
            answers.append(net.get_tensor(net.get_output_details()[0]["index"]))
        return calls, np.stack(answers)

    draw = np.random.default_rng(0)
    best, most = _patterns(draw), -1
    for number in range(_TRIES):
        if number < _FIRST:
            one = _patterns(draw) * draw.choice([30, 60, 100]) + draw.uniform(-128, 0)
        else:
            one = best + _patterns(draw) * draw.choice([10, 40, 80])
        score = int(np.minimum(heard(one)[1], _LOUD).sum())
        if score > most or (score == most and number >= _FIRST):
            best, most = one, score
    calls, answers = heard(best)
    return Trained(str(path), calls, [answers])


def _voice(seconds: float, seed: int) -> np.ndarray:
    """What sounds like vowels and pauses: harmonics of a wandering pitch, wandering formants; f32[samples]."""
    draw = np.random.default_rng(seed)
    time = np.arange(int(seconds * _RATE)) / _RATE

    def wander(low: float, high: float, rate: float) -> np.ndarray:
        knots = draw.uniform(low, high, int(seconds * rate) + 2)
        return np.interp(time * rate, np.arange(len(knots)), knots)

    pitch = wander(90, 220, 2)
    phase = 2 * np.pi * np.cumsum(pitch) / _RATE
    formants = [(wander(250, 850, 5), 80), (wander(850, 2300, 5), 100), (wander(2300, 3200, 3), 150)]
    sound = np.zeros_like(time)
    for harmonic in range(1, 36):
        gain = sum(1 / (1 + ((harmonic * pitch - center) / width) ** 2) for center, width in formants)
        sound += np.where(harmonic * pitch < 7500, gain, 0) / np.sqrt(harmonic) * np.sin(harmonic * phase)
    sound *= np.clip(wander(-1.2, 1, 6), 0, 1) * (wander(-1, 1, 0.7) > -0.2)
    hiss = wander(0.0005, 0.01, 1) * draw.standard_normal(len(time))
    return (0.5 * sound / max(np.abs(sound).max(), 1e-9) + hiss).astype(np.float32)


def _chunks(sound: np.ndarray) -> Iterator[np.ndarray]:
    """What silero-vad takes at each call: 512 samples behind the last 64 of the call before; f32[1, 576]."""
    padded = np.concatenate([np.zeros(_CONTEXT, np.float32), sound])
    for begin in range(0, len(sound) - _CHUNK + 1, _CHUNK):
        yield padded[None, begin : begin + _CONTEXT + _CHUNK]


def _silero_net() -> nn.Module:
    """silero-vad for 16 kHz, with the package's weights: a Fourier transform, four convolutions and an LSTM."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Silero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transform = nn.Conv1d(1, 258, 256, stride=128, bias=False)
            sizes = ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
            self.convs = nn.ModuleList(nn.Conv1d(i, o, 3, stride, padding=1) for i, o, stride in sizes)
            self.lstm = nn.LSTM(128, 128)
            self.head = nn.Conv1d(128, 1, 1)
            self.register_buffer("state", torch.zeros(1, 1, 128))
            self.register_buffer("cell", torch.zeros(1, 1, 128))

        def forward(self, sound: torch.Tensor) -> torch.Tensor:
            waves = self.transform(F.pad(sound[:, None], (0, 64), "reflect"))
            x = (waves[:, :129].square() + waves[:, 129:].square()).sqrt()
            for conv in self.convs:
                x = conv(x).relu()
            y, (self.state, self.cell) = self.lstm(x.permute(2, 0, 1), (self.state, self.cell))
            return self.head(y.permute(1, 2, 0).relu()).sigmoid().mean(2)

    net, stored = Silero(), _silero_script().state_dict()
    names = {"transform.weight": "stft.forward_basis_buffer"}
    for part in ("weight", "bias"):
        names |= {f"convs.{i}.{part}": f"encoder.{i}.reparam_conv.{part}" for i in range(4)}
        names |= {f"lstm.{part}_{one}_l0": f"decoder.rnn.{part}_{one}" for one in ("ih", "hh")}
        names[f"head.{part}"] = f"decoder.decoder.2.{part}"
    net.load_state_dict({own: stored[f"_model.{name}"] for own, name in names.items()}, strict=False)
    return net.eval()


def _silero_script() -> Any:
    """The package's own network, in TorchScript."""
    import torch

    return torch.jit.load(_file("silero_vad", "data/silero_vad.jit")).eval()


def silero_vad() -> tuple:
    """The factory of silero-vad, calibrated with other sounds than it is run on."""
    import torch

    chunks = [(torch.from_numpy(chunk),) for chunk in _chunks(_voice(4, seed=1))]
    return _silero_net(), chunks[0], chunks


def _silero() -> Trained:
    import torch

    samples, script = list(_chunks(_voice(4, seed=0))), _silero_script()
    with torch.no_grad():
        answers = [script(torch.from_numpy(sample[:, _CONTEXT:]), _RATE).numpy() for sample in samples]
    return Trained(f"{__file__}:silero_vad", samples, [np.stack(answers)], ("--activations", "int16"))


def _own_files(first: int, last: int) -> Samples:
    """This repository's files as magika takes them, of each kind those from `first` to before `last`: the first and the
    last 1,024 bytes without white space at the ends, 256 where the file has no more; i32[1, 2048]."""
    root, kinds = Path(__file__).parents[1], dict[str, list[Path]]()
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root).parts
        if path.is_file() and path.stat().st_size >= _LEAST_BYTES and not {"build", "tosaic"} & set(inside):
            kinds.setdefault(path.suffix, []).append(path)
    samples = []
    for path in (one for paths in kinds.values() for one in paths[first:last]):
        head, tail = path.read_bytes()[:4096].lstrip()[:_BYTES], path.read_bytes()[-4096:].rstrip()[-_BYTES:]
        missing = [[256] * (_BYTES - len(part)) for part in (head, tail)]
        samples.append(np.array([[*head, *missing[0], *missing[1], *tail]], np.int32))
    return samples


def magika_files() -> Samples:
    """What magika is calibrated with."""
    return _own_files(0, 3)


def _magika() -> Trained:
    """It tells of what kind a file is."""
    path, samples = _file("magika", "models/standard_v3_3/model.onnx"), _own_files(3, 5)
    session = import_module("onnxruntime").InferenceSession(path)
    answers = np.stack([session.run(None, {"bytes": sample})[0] for sample in samples])
    options = (
        "--activations",
        "int16",
        "--shape",
        f"bytes=1,{2 * _BYTES}",
        "--calibration",
        f"{__file__}:magika_files",
    )
    return Trained(str(path), samples, [answers], options)


def _notes(seed: int) -> np.ndarray:
    """Eight notes that begin, overlap and fade, each of eight harmonics; f32[1, 43844, 1] at 22,050 Hz."""
    draw, time = np.random.default_rng(seed), np.arange(_WINDOW) / 22_050
    sound = np.zeros_like(time)
    for _ in range(8):
        pitch, begin, length = 440 * 2 ** (draw.integers(-24, 18) / 12), draw.uniform(0, 1.5), draw.uniform(0.2, 1)
        heard = (time >= begin) & (time < begin + length)
        loud = heard * np.exp(3 * np.minimum(begin - time, 0)) * np.clip((time - begin) * 200, 0, 1)
        sound += loud * sum(np.sin(2 * np.pi * pitch * n * time) / n**1.3 for n in range(1, 9))
    return (0.3 * sound / np.abs(sound).max()).astype(np.float32).reshape(1, _WINDOW, 1)


def basic_pitch_notes() -> Samples:
    """What basic-pitch is calibrated with."""
    return [_notes(seed) for seed in range(3)]


def _basic_pitch() -> Trained:
    """It finds the notes in music; the logarithms of its spectra, and what computes these, stay in f32."""
    path, samples = _file("basic_pitch", "saved_models/icassp_2022/nmp.onnx"), [_notes(seed) for seed in (10, 11)]
    session = import_module("onnxruntime").InferenceSession(path)
    rows = [session.run(None, {session.get_inputs()[0].name: sample}) for sample in samples]
    floats = ("log", "sqrt", "sum", "mul", "add", "sub", "div", "amax", "amin")
    options = ("--activations", "int16", "--calibration", f"{__file__}:basic_pitch_notes")
    options += tuple(word for op in floats for word in ("--exclude", op))
    return Trained(str(path), samples, list(map(np.stack, zip(*rows, strict=True))), options)


NETWORKS: dict[str, Callable[[], Trained]] = {
    **{name: lambda name=name: _wake_word(name) for name in _WAKE_WORDS},
    "silero_vad": _silero,
    "magika": _magika,
    "basic_pitch": _basic_pitch,
}


def _db(answers: np.ndarray, outputs: list[np.ndarray]) -> str:
    """Signal to noise in dB of one output against the package's."""
    from tosaic.builds.accuracy import sqnr_db

    if answers.dtype == np.uint8:  # compiled as int8, 128 less
        outputs = [one.astype(np.int16) + 128 for one in outputs]
    db = sqnr_db(list(answers), [one.reshape(answers[0].shape) for one in outputs])
    return "equal" if db is None else f"{db:.1f}"


def _row(name: str, trained: Trained, target: str, build: Path) -> str:
    from tosaic.api import Build
    from tosaic.runs.running import run_build

    made = tosaic("compile", trained.model, *trained.options, "--target", target, "-o", str(build))
    ran = run_build(Build.load(build), [[sample] for sample in trained.samples])
    rows = [ran.build.dequantize_outputs(list(row)) for row in ran.board.outputs]
    far = [_db(answers, [row[index] for row in rows]) for index, answers in enumerate(trained.answers)]
    regions, calls = made["regions"], len(trained.samples)
    return (
        f"| {name} | {target} | {calls} | {regions['npu']} | {regions['cpu']} | {ran.board.instructions:,} "
        f"| {ran.board.cycles:,} | {made['npu_cycles']:,} | {made['arena_bytes']:,} | {made['flash_bytes']:,} "
        f"| {('yes' if ran.exact else 'NO') if ran.defined else 'in bounds'} | {' / '.join(far)} |"
    )


@click.command()
@click.option("--networks", default=",".join(NETWORKS), show_default=True, help="Names, separated by commas.")
@click.option("--targets", default="cortex-m55,corstone-300", show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/trained"), show_default=True)
def main(networks: str, targets: str, folder: Path) -> None:
    """Print a Markdown table, a row for each network and target."""
    click.echo(_HEADER)
    click.echo("|" + "---|" * (_HEADER.count("|") - 1))
    for name in networks.split(","):
        trained = NETWORKS[name]()
        for target in targets.split(","):
            click.echo(_row(name, trained, target, folder / f"{name}-{target}"))


if __name__ == "__main__":
    main()
