"""Language models generate on the board: the tokens are those of the integer module, whatever draws them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import NETS

from tosaic.api import Build
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.build import simulator_objects
from tosaic.backends.firmware.decoder import TokenDecoder
from tosaic.backends.simulators.runners import find_runner
from tosaic.runs.generation import generate
from tosaic.runs.sampling import Sampling
from tosaic.support.errors import Error

ROOT = Path(__file__).parents[2]
_MAIN = """
#include "semihosting.h"

void put(const void *text, uint32_t bytes)
{
    char one[2] = {0};
    for (uint32_t i = 0; i < bytes; i++) {
        one[0] = ((const char *)text)[i];
        host_print(one);
    }
}

int main(void)
{
    return write_on("df", 6);
}
"""


@pytest.fixture(scope="module", params=["cortex-m55", "cortex-m4"])
def decoder(request, succeed, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("decoder") / "build"
    succeed("compile", f"{NETS}:decoder", "--target", request.param, "-o", folder)
    return folder


def test_what_generates_is_known(decoder, net):
    assert Build.load(decoder).manifest.firmware.decoder == TokenDecoder("token", "position", 24, 12)
    assert Build.load(net).manifest.firmware.decoder is None
    assert not (net / "kit" / "generate").exists()


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(1.0, seed=7), Sampling(2.0, top_k=5, top_p=0.9, seed=3), Sampling(0.5, top_p=0.3)],
    ids=["greedy", "warm", "top-k and top-p", "top-p"],
)
def test_tokens_are_those_of_the_integer_module(decoder, sampling):
    done = Build.load(decoder).generate([3, 5], 6, sampling=sampling)
    assert not done.difference and len(done.tokens) == 6
    assert len(done.steps) == 7 and done.tokens_per_second and done.first_milliseconds


def test_a_text_ends_with_its_context(decoder, succeed):
    told = succeed("generate", decoder, "--prompt", "3, 5", "--tokens", 30)
    assert told["exact"] and told["context"] == 12 and len(told["tokens"]) == 11
    assert told["text"].split(",") == [str(token) for token in (3, 5, *told["tokens"])]


def test_a_text_ends_with_its_last_token(decoder, succeed):
    whole = succeed("generate", decoder, "--prompt", "3", "--tokens", 8, "--no-compare")["tokens"]
    end = whole[2]
    cut = succeed("generate", decoder, "--prompt", "3", "--tokens", 8, "--end", end)
    assert cut["tokens"] == whole[: whole.index(end) + 1]


def test_a_report_says_how_fast_it_is(decoder, tosaic):
    shown = tosaic("generate", decoder, "--prompt", "1,2", "--tokens", 3).stdout
    assert "2 of the prompt, 3 drawn" in shown and "tokens/s" in shown
    assert "the integer module draws the same tokens by the same scores" in shown
    assert "192 B, 16 B a token, for 12 tokens" in shown


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("24", "there is no token 24\n  because: the model has 24 tokens, from 0 on"),
        ("hello", "`hello` is not numbers of tokens"),
        (",".join(["1"] * 13), "the prompt has 13 tokens\n  because: the model's context holds 12"),
    ],
)
def test_a_prompt_that_the_model_does_not_take(decoder, refused, prompt, words):
    assert words in refused("generate", decoder, "--prompt", prompt)


def test_a_model_that_does_not_generate(net, refused):
    assert "does not generate\n  because: that takes a model with states" in refused("generate", net, "--prompt", "1")


def test_a_sampler_that_draws_otherwise_is_caught(decoder):
    build = Build.load(decoder)
    source = decoder / "kit" / "generate" / "tosaic_sampler.c"
    right = source.read_text()
    try:
        source.write_text(right.replace("next ^= next >> 17", "next ^= next >> 18"))
        done = generate(build, [3, 5], 8, sampling=Sampling(4.0))
    finally:
        source.write_text(right)
    assert "on the board, and" in done.difference


def test_scores_that_the_integer_module_does_not_have_are_caught(decoder):
    build = Build.load(decoder)
    states = [state + 1 for state in build.states]
    build.__dict__["states"] = states  # of the reference alone
    assert generate(build, [3, 5], 4).difference.startswith("the scores of drawn token 0")


def test_a_tokenizer_makes_text_of_tokens(decoder, succeed, refused, tmp_path):
    file = tmp_path / "tokenizer.json"
    vocabulary = {chr(ord("a") + number): number for number in range(24)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    file.write_text(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    told = succeed("generate", decoder, "--prompt", "df", "--tokenizer", file, "--tokens", 2)
    assert told["prompt"] == [3, 5]
    assert told["text"].replace(" ", "") == "df" + "".join(chr(ord("a") + token) for token in told["tokens"])
    file.write_text("{}")
    assert f"cannot read `{file}`" in refused("generate", decoder, "--prompt", "df", "--tokenizer", file)


def test_the_c_of_the_page_writes_what_the_command_writes(decoder, succeed, tmp_path):
    build, vocabulary = Build.load(decoder), {"\u2581": 24, **{chr(ord("a") + number): number for number in range(24)}}
    byte_tokens = {f"<0x{byte:02X}>": 25 + byte for byte in range(256)}
    model = {"type": "BPE", "vocab": vocabulary | byte_tokens, "merges": []}
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    (tmp_path / "t.json").write_text(json.dumps({"model": model, "normalizer": space}))
    succeed("tokenizer", tmp_path / "t.json", "--name", "words", "-o", tmp_path / "words.c")
    (page,) = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "generation.md").read_text(), re.DOTALL)
    (tmp_path / "main.c").write_text(page + _MAIN)
    kit, core = decoder / "kit", build.manifest.target.core
    flags, objects = [f"-I{kit / 'include'}", f"-I{kit / 'generate'}"], []
    for source in (*(kit / "generate").glob("*.c"), tmp_path / "words.c", tmp_path / "main.c"):
        objects.append(tmp_path / f"{source.stem}.o")
        toolchain.compile_c(source, objects[-1], core, *flags)
    parts = simulator_objects(decoder, "model", core, False, str(objects.pop()))
    toolchain.link([*parts, *objects], decoder / "model.ld", tmp_path / "text.elf", core)
    ran = find_runner("qemu", build.manifest.target).run(tmp_path / "text.elf", {}, count=False).check("the page's C")
    told = succeed("generate", decoder, "--prompt", "3,5", "--tokens", 6, "--temperature", 0.7, "--top-p", 0.9)
    assert ran.console.strip() == "".join(chr(ord("a") + token) for token in told["tokens"])


def test_the_prompt_is_not_empty(decoder):
    with pytest.raises(Error, match="the prompt is empty"):
        generate(Build.load(decoder), [], 3)
