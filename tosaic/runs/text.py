"""Prompts as tokens, and tokens as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tosaic.support.errors import Error


class Text:
    """What tokens mean: their numbers, or text by a tokenizer.

    Args:
        file: Hugging Face's tokenizer.json; None for numbers.

    Raises:
        Error: the package `tokenizers` is not installed, or it does not read the file.
    """

    def __init__(self, file: Path | None) -> None:
        self._tokenizer = None
        if file is None:
            return
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise Error(
                "--tokenizer needs the package tokenizers", why=str(error), hint="pip install tosaic[generate]"
            ) from None
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # it raises no other class
            raise Error(f"cannot read `{file}`", why=str(error), hint="a tokenizer.json of Hugging Face") from None

    def encode(self, prompt: str) -> list[int]:
        """The tokens of a prompt.

        Raises:
            Error: without a tokenizer, it is not numbers.
        """
        if self._tokenizer is not None:
            return self._tokenizer.encode(prompt).ids
        if not re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", prompt):
            raise Error(f"`{prompt}` is not numbers of tokens", hint="write 1,403,9, or name a --tokenizer")
        return [int(number) for number in prompt.split(",")]

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens as text; their numbers where there is no tokenizer."""
        if self._tokenizer is None:
            return ",".join(map(str, tokens))
        return self._tokenizer.decode(list(tokens))
