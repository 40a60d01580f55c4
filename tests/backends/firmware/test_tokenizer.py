"""The tokenizer of the kit, compiled for the host, beside Hugging Face's."""

from __future__ import annotations

import ctypes
import json

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.tokenizer import BytePairs
from tosaic.cli import main
from tosaic.support.errors import Error
from tosaic.support.processes import run_tool

_TEXTS = [
    "the weights of the layer and the weights of the next",
    "a layer, another layer; the last one",
    "na\u00efve \u00e9t\u00e9 \u2192 na\u00efve",
] * 4


def _byte_level(spaced: bool) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        _TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["<end>"])
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return made


def _sentence_piece() -> Tokenizer:
    """As Llama's: spaces are U+2581, unknown characters are bytes, and every text begins with a token."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(_TEXTS, trainers.BpeTrainer(vocab_size=340, special_tokens=specials))
    described = json.loads(made.to_str())
    described["model"] |= {"byte_fallback": True, "fuse_unk": True}
    described["added_tokens"] = described["added_tokens"][:1]
    made = Tokenizer.from_str(json.dumps(described))
    made.pre_tokenizer = None
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return made


def _metaspace(scheme: str) -> Tokenizer:
    made = _sentence_piece()
    made.normalizer = None
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return made


_KINDS = {
    "bytes": lambda: _byte_level(False),
    "bytes behind a space": lambda: _byte_level(True),
    "SentencePiece": _sentence_piece,
    "Metaspace": lambda: _metaspace("never"),
    "Metaspace behind a space": lambda: _metaspace("always"),
}


class _InC:
    """`tosaic_encode` and `tosaic_decode` with one tokenizer."""

    def __init__(self, made: Tokenizer, folder) -> None:
        made.save(str(folder / "tokenizer.json"))
        (folder / "tokens.c").write_text(BytePairs.read(folder / "tokenizer.json").as_c("tokens"))
        kit, library = toolchain.SOURCES / "kit", folder / "tokens.so"
        flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{kit}"]
        run_tool("gcc", [*flags, kit / "tosaic_tokenizer.c", folder / "tokens.c", "-o", library])
        self._library = ctypes.CDLL(str(library))
        self._library.tosaic_decode.restype = ctypes.POINTER(ctypes.c_uint8)
        self._table = ctypes.addressof(ctypes.c_char.in_dll(self._library, "tokens"))

    def encode(self, text: str, room: int | None = None) -> list[int] | None:
        data = text.encode()
        room = len(data) + 2 if room is None else room
        tokens = (ctypes.c_int32 * max(1, room))()
        count = self._library.tosaic_encode(ctypes.c_void_p(self._table), data, tokens, room)
        return None if count < 0 else list(tokens[:count])

    def decode(self, token: int) -> bytes:
        count = ctypes.c_uint32()
        found = self._library.tosaic_decode(ctypes.c_void_p(self._table), token, ctypes.byref(count))
        return bytes(found[: count.value])


@pytest.fixture(scope="module", params=_KINDS)
def both(request, tmp_path_factory):
    made = _KINDS[request.param]()
    return made, _InC(made, tmp_path_factory.mktemp("tokenizer"))


_PARTS = ["the", " weights", "layer ", " ", "  ", "na\u00efve", "\u2192", "\U0001f600", "\n", "x9-"]
_CHARACTERS = st.characters(exclude_characters="\0\u2581<", exclude_categories=["Cs"])


@settings(max_examples=150, deadline=None)
@given(text=st.lists(st.sampled_from(_PARTS) | st.text(_CHARACTERS, max_size=6), max_size=12).map("".join))
def test_a_text_has_the_tokens_that_hugging_face_finds(both, text):
    made, in_c = both
    assert in_c.encode(text) == made.encode(text).ids


def test_tokens_are_the_text_again(both):
    made, in_c = both
    for text in ("the weights of another layer", "na\u00efve \U0001f600 x"):
        tokens = made.encode(text).ids
        assert b"".join(map(in_c.decode, tokens)).decode().lstrip() == text
    assert in_c.decode(-1) == in_c.decode(100_000) == b""


def test_too_many_tokens_are_said(both):
    _, in_c = both
    assert in_c.encode("\U0001f600\U0001f600", 3) is None


def test_a_table_is_written(both, tmp_path):
    made, _ = both
    made.save(str(tmp_path / "tokenizer.json"))
    done = CliRunner().invoke(
        main,
        ["tokenizer", str(tmp_path / "tokenizer.json"), "-o", str(tmp_path / "words.c"), "--name", "words", "--json"],
    )
    told = json.loads(done.stdout)
    assert told["tokens"] == made.get_vocab_size()
    assert "const tosaic_tokenizer words = {" in (tmp_path / "words.c").read_text()


def _changed(made: Tokenizer, **changes) -> str:
    described = json.loads(made.to_str())
    described["model"] |= changes.pop("model", {})
    return json.dumps(described | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": {"type": "Unigram"}}, "a model other than BPE"),
        ({"model": {"dropout": 0.1}}, "`dropout`"),
        ({"model": {"ignore_merges": True}}, "`ignore_merges`"),
        ({"normalizer": {"type": "NFC"}}, "the normalizer NFC"),
        ({"pre_tokenizer": {"type": "ByteLevel", "use_regex": True}}, "the pre-tokenizer ByteLevel, or its expression"),
        ({"pre_tokenizer": None}, "neither bytes nor spaces of SentencePiece"),
        ({"post_processor": {"type": "BertProcessing"}}, "the post-processor BertProcessing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_c_does_not_do_is_refused(tmp_path, changes, words):
    file = tmp_path / "tokenizer.json"
    file.write_text(_changed(_byte_level(False), **changes))
    with pytest.raises(Error, match=words):
        BytePairs.read(file)


def test_a_byte_without_a_token_is_refused(tmp_path):
    file = tmp_path / "tokenizer.json"
    described = json.loads(_byte_level(False).to_str())
    del described["model"]["vocab"]["a"]
    described["model"]["merges"] = []
    file.write_text(json.dumps(described))
    with pytest.raises(Error, match="no token for some bytes"):
        BytePairs.read(file)


def test_merges_across_spaces_are_refused_where_a_text_is_cut_at_them(tmp_path):
    file = tmp_path / "tokenizer.json"
    described = json.loads(_metaspace("never").to_str())
    described["model"]["vocab"]["a\u2581"] = 999
    described["model"]["merges"].append(["a", "\u2581"])
    file.write_text(json.dumps(described))
    with pytest.raises(Error, match="merges across the spaces that it cuts at"):
        BytePairs.read(file)
