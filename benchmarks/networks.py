"""Networks of timm, torchvision and transformers: `python benchmarks/networks.py`, where these are installed.

Random weights; images of 64 to 160 pixels, texts of 32 tokens. Each network is compiled, proven and run, and is one row
for each target. Rows are kept in `rows.md` of the folder: what is there is not run again. `tosaic compile
benchmarks/networks.py:NAME` compiles one of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

_CLASSES, _SAMPLES, _TOKENS, _WORDS = 100, 8, 32, 512
_HEADER = "| network | target | NPU regions | CPU kernels | instructions | NPU cycles | arena B | f32 ops | exact | s |"

_TIMM: dict[str, dict[str, int]] = {
    "for phones": {
        "efficientnet_b0": 64, "efficientnet_es": 64, "efficientnet_lite0": 64, "fbnetc_100": 64, "fbnetv3_b": 64,
        "ghostnet_050": 64, "ghostnetv2_100": 64, "ghostnetv3_050": 64, "hardcorenas_a": 64, "lcnet_050": 64,
        "mixnet_s": 64, "mnasnet_small": 64, "mobilenetv1_100": 64, "mobilenetv2_035": 64, "mobilenetv3_small_050": 64,
        "mobilenetv4_conv_small_035": 64, "mobileone_s0": 64, "repghostnet_050": 64, "repvit_m0_9": 64,
        "rexnetr_100": 64, "semnasnet_075": 64, "spnasnet_100": 64, "starnet_s050": 64, "tinynet_e": 64,
    },
    "convolutions": {
        "convnext_atto": 64, "convnext_zepto_rms": 64, "convnextv2_atto": 64, "cs3darknet_focus_s": 64,
        "cs3darknet_s": 64, "cspresnet50": 64, "darknet17": 64, "densenet121": 64, "dla46_c": 64, "dla46x_c": 64,
        "ese_vovnet19b_slim_dw": 64, "hgnetv2_b0": 64, "hrnet_w18_small": 64, "inception_next_atto": 64,
        "nf_regnet_b0": 64, "regnetx_002": 64, "regnety_002": 64, "repvgg_a0": 64, "resnest14d": 64, "resnet10t": 64,
        "resnext26ts": 64, "selecsls42": 64, "seresnet18": 64, "skresnet18": 64,
    },
    "attention and mixers": {
        "coat_lite_tiny": 64, "deit_tiny_patch16_224": 64, "edgenext_xx_small": 64,
        "efficientformerv2_s0": 64, "efficientvit_b0": 64, "efficientvit_m0": 64,
        "fastvit_t8": 64, "gmlp_ti16_224": 64, "levit_128s": 64, "mixer_s32_224": 64, "mobilevit_xxs": 64,
        "mobilevitv2_050": 64, "pit_ti_224": 64, "poolformer_s12": 64, "pvt_v2_b0": 64, "resmlp_12_224": 64,
        "shvit_s1": 64, "swiftformer_xs": 64, "tiny_vit_5m_224": 64, "xcit_nano_12_p16_224": 64,
    },
}  # fmt: skip
_TORCHVISION = {
    "googlenet": 64, "mnasnet0_5": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64, "regnet_y_400mf": 64,
    "resnet18": 64, "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64,
}  # fmt: skip
_SIZED = (
    "coat_lite_tiny", "deit_tiny_patch16_224", "efficientformerv2_s0", "gmlp_ti16_224", "levit_128s",
    "mixer_s32_224", "pit_ti_224", "resmlp_12_224",
)  # fmt: skip
"""Networks of timm whose weights depend on the size of the images."""
_SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
_DECODER = {**_SMALL, "num_key_value_heads": 1}
_OPT = {"num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 128}
_NEO = {"num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}
_TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "albert": ("Albert", {**_SMALL, "embedding_size": 32}),
    "bert": ("Bert", _SMALL),
    "biogpt": ("BioGpt", _SMALL),
    "bloom": ("Bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 2}),
    "codegen": ("CodeGen", {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8}),
    "convbert": ("ConvBert", {**_SMALL, "embedding_size": 64}),
    "deberta": ("Deberta", _SMALL),
    "distilbert": ("DistilBert", {"dim": 64, "n_layers": 2, "n_heads": 2, "hidden_dim": 128}),
    "electra": ("Electra", {**_SMALL, "embedding_size": 32}),
    "ernie": ("Ernie", _SMALL),
    "falcon": ("Falcon", {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}),
    "fnet": ("FNet", _SMALL),
    "gemma": ("Gemma", {**_DECODER, "head_dim": 32}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 2}),
    "gpt_bigcode": ("GPTBigCode", {"n_embd": 64, "n_layer": 2, "n_head": 2}),
    "gpt_neo": ("GPTNeo", {"hidden_size": 64, **_NEO}),
    "gpt_neox": ("GPTNeoX", _SMALL),
    "gptj": ("GPTJ", {"n_embd": 64, "n_layer": 2, "n_head": 2, "rotary_dim": 16}),
    "granite": ("Granite", _DECODER),
    "llama": ("Llama", _DECODER),
    "mistral": ("Mistral", _DECODER),
    "mobilebert": ("MobileBert", {**_SMALL, "embedding_size": 32, "intra_bottleneck_size": 32}),
    "modernbert": ("ModernBert", {**_SMALL, "pad_token_id": 0}),
    "mpnet": ("MPNet", _SMALL),
    "nemotron": ("Nemotron", _DECODER),
    "olmo": ("Olmo", _DECODER),
    "olmo2": ("Olmo2", _DECODER),
    "opt": ("OPT", {"hidden_size": 64, "word_embed_proj_dim": 64, **_OPT}),
    "persimmon": ("Persimmon", _SMALL),
    "phi": ("Phi", _SMALL),
    "phi3": ("Phi3", {**_DECODER, "pad_token_id": 0}),
    "qwen2": ("Qwen2", _DECODER),
    "qwen3": ("Qwen3", {**_DECODER, "head_dim": 32}),
    "rembert": ("RemBert", {**_SMALL, "input_embedding_size": 32}),
    "roberta": ("Roberta", _SMALL),
    "roformer": ("RoFormer", {**_SMALL, "embedding_size": 64}),
    "squeezebert": ("SqueezeBert", {**_SMALL, "embedding_size": 64}),
    "stablelm": ("StableLm", _DECODER),
    "starcoder2": ("Starcoder2", _DECODER),
    "t5_encoder": ("T5Encoder", {"d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 2}),
    "xglm": ("XGLM", {"d_model": 64, "ffn_dim": 128, "num_layers": 2, "attention_heads": 2}),
}  # fmt: skip


def _timm(model: str, size: int) -> tuple:
    options = {"img_size": size} if model in _SIZED else {}
    return _of_images(import_module("timm").create_model(model, num_classes=_CLASSES, **options), size)


def _torchvision(model: str, size: int) -> tuple:
    options = {"init_weights": False, "aux_logits": False} if model == "googlenet" else {}
    models = import_module("torchvision").models
    return _of_images(models.get_model(model, weights=None, num_classes=_CLASSES, **options), size)


def _of_images(module: Any, size: int) -> tuple:
    import torch

    samples = [(torch.randn(1, 3, size, size),) for _ in range(_SAMPLES)]
    return module.eval(), samples[0], samples


def _transformer(family: str, options: dict[str, Any]) -> tuple:
    import torch

    transformers = import_module("transformers")
    config = getattr(transformers, f"{family.removesuffix('Encoder')}Config")
    module = getattr(transformers, f"{family}Model")(config(vocab_size=_WORDS, use_cache=False, **options))
    samples = [(torch.randint(3, _WORDS, (1, _TOKENS)),) for _ in range(_SAMPLES)]
    return module.eval(), samples[0], samples


NETWORKS: dict[str, tuple[Callable[..., tuple], Any, Any]] = {
    **{name: (_timm, name, size) for family in _TIMM.values() for name, size in family.items()},
    **{name: (_torchvision, name, size) for name, size in _TORCHVISION.items()},
    **{name: (_transformer, *each) for name, each in _TRANSFORMERS.items()},
}


def __getattr__(name: str) -> Callable[[], tuple]:
    """A network of the table as a factory, as `benchmarks/networks.py:NAME` asks for it."""
    if name not in NETWORKS:
        raise AttributeError(name)

    def make() -> tuple:
        import torch

        torch.manual_seed(0)
        function, *given = NETWORKS[name]
        return function(*given)

    return make


def _floats(build: Any) -> int:
    """The number of ops in f32 in a build's integer module.

    Raises:
        ClickException: no warning of the compilation names one of them.
    """
    from tosaic.passes.quantize.floats_left import computes_floats
    from tosaic.support.locations import describe
    from tosaic.support.mlir import functions, walk

    left = [op for op in walk(functions(build.module)["main"]) if computes_floats(op)]
    said = {one.where for one in build.manifest.warnings}
    if unsaid := [op for op in left if describe(op.location) not in said]:
        raise click.ClickException(f"no warning says that `{unsaid[0]}` stays float32")
    return len(left)


def _row(name: str, target: str, folder: Path) -> str:
    import tosaic
    from tosaic.api import Build
    from tosaic.runs.running import random_samples, run_build

    begin = time.monotonic()
    build = Build.load(tosaic.compile(f"{__file__}:{name}", target=target, output=folder).folder)
    ran, made = run_build(build, random_samples(build, 1, seed=0)), build.manifest
    return (
        f"| {name} | {target} | {len(made.regions)} | {len(made.kernels)} | {ran.board.instructions:,} "
        f"| {made.npu_cycles:,} | {made.firmware.arena_bytes:,} | {_floats(build)} | {'yes' if ran.exact else 'NO'} "
        f"| {time.monotonic() - begin:.0f} |"
    )


def _alone(function: Callable[..., str], *arguments: Any) -> str:
    """What a function gives in a process of its own, which finds imported what this one has imported."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(function, *arguments).result()


@click.command()
@click.option("--networks", default=",".join(NETWORKS), help="Names, separated by commas; default: all.")
@click.option("--targets", default="cortex-m55,corstone-300", show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/networks"), show_default=True)
def main(networks: str, targets: str, folder: Path) -> None:
    """Print a Markdown table, a row for each network and target; networks that fail are named on stderr."""
    for package in ("timm", "torchvision", "transformers", "tosaic.api", "tosaic.runs.running"):
        import_module(package)
    folder.mkdir(parents=True, exist_ok=True)
    rows, failed = folder / "rows.md", []
    rows.touch()
    click.echo(_HEADER)
    click.echo("|" + "---|" * (_HEADER.count("|") - 1))
    for name in networks.split(","):
        for target in targets.split(","):
            kept = [row for row in rows.read_text().splitlines() if row.startswith(f"| {name} | {target} |")]
            try:
                row = kept[0] if kept else _alone(_row, name, target, folder / f"{name}-{target}")
            except Exception as error:
                failed.append(f"{name} on {target}: {error}")
                click.echo(failed[-1], err=True)
                continue
            click.echo(row)
            if not kept:
                with rows.open("a") as file:
                    file.write(row + "\n")
    if failed:
        raise click.ClickException(f"{len(failed)} rows are missing")


if __name__ == "__main__":
    main()
