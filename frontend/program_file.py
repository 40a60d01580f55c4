"""Opens a `.pt2` without running anything that its author put there.

torch.export.load unpickles records, loads compiled libraries, evaluates symbolic sizes and guards, imports modules that
the types of results name, and writes names of the graph into Python source that it executes. Nothing reaches it but a
copy of known records: raw tensors, pickles that torch's restricted unpickler takes, written anew, and a graph whose
names are words and whose calls are ops.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from tosaic.frontend.lowerings.registry import registered
from tosaic.support.errors import ModelError

_GRAPH = "models/model.json"
_TENSORS = re.compile(r"data/(weights/weight|constants/tensor)_\d+")
_INDICES = re.compile(r"data/(weights/model_weights|constants/model_constants)_config\.json")
_EXAMPLES = "data/sample_inputs/model.pt"
_FORMAT = ("archive_format", "archive_version", "byteorder", ".data/version")
_UNREAD = re.compile(r"\.data/serialization_id|version|extra(/(?!\.\.)[\w.-]+)+")
# Sizes that are symbols, and sums and products of them: they are given numbers, or refused by the input that has them.
_SIZE = r"(?:(?:Mul|Add|Integer|Symbol|FloorDiv|Mod|Max|Min)\(|'\w+'|-?\d{1,18}|\w+=True|, |\))+"
_WORD = re.compile(rf"[\w.+-]*|{_SIZE}", re.ASCII)
_OP = re.compile(r"torch\.ops\.(\w+)\.(\w+)\.\w+", re.ASCII)
_NAMESPACES = {"aten", "prims"}
_NO_OPS = {"from_file", "save"}  # of ATen: they name files
_ALLOWED = ("_operator.getitem", "torch.ops.higher_order.wrap_with_set_grad_enabled")
_PYTREES = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")
_TEXTS = ("metadata", "as_string", "as_strings")  # kept as texts or quoted
_MOST_ELEMENTS = 2**31
_SYMLINK = 0o120000


class _RefusedError(Exception):
    """Why a file is not opened."""


def read_program(path: Path) -> ExportedProgram:
    """The program in a `.pt2` file.

    Raises:
        ModelError: the file is missing or damaged, or holds more than a program of ops and tensors.
    """
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    try:
        return torch.export.load(_checked_copy(path))
    except _RefusedError as error:
        raise ModelError(
            f"{path} is not opened: it holds more than a program of ops and tensors",
            why=str(error),
            hint="a file.py:factory that you trust may return any module",
        ) from None
    except Exception as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"{path} cannot be read as a .pt2 program", why=why, hint="write it with torch.export.save"
        ) from None


def _checked_copy(path: Path) -> io.BytesIO:
    copy = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as checked:
        records = _records(archive)
        pickled = _pickled(archive, records)
        for name, record in records.items():
            data = archive.read(record)
            if name == _GRAPH:
                data = json.dumps(_checked_graph(json.loads(data))).encode()
            if name in pickled:
                data = _repickled(name, data)
            checked.writestr(f"program/{name}", data)
    copy.seek(0)
    return copy


def _records(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The records that are read, by their names below the archive's one folder."""
    entries = archive.infolist()
    root = entries[0].filename.partition("/")[0] if entries else ""
    records: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename.removeprefix(f"{root}/")
        if entry.compress_type != zipfile.ZIP_STORED:
            raise _RefusedError(f"record `{entry.filename}` is compressed, which torch.export.save never does")
        if entry.external_attr >> 16 & 0o170000 == _SYMLINK:
            raise _RefusedError(f"record `{entry.filename}` is a symbolic link")
        if name in records:
            raise _RefusedError(f"there are two records `{entry.filename}`")
        if name in (_GRAPH, _EXAMPLES, *_FORMAT) or _TENSORS.fullmatch(name) or _INDICES.fullmatch(name):
            records[name] = entry
        elif not _UNREAD.fullmatch(name):
            raise _RefusedError(f"record `{entry.filename}` is none of a program's")
    return records


def _pickled(archive: zipfile.ZipFile, records: dict[str, zipfile.ZipInfo]) -> set[str]:
    """The names of the records that torch unpickles."""
    names = {_EXAMPLES} & set(records)
    for index in filter(_INDICES.fullmatch, records):
        payloads = json.loads(archive.read(records[index]))
        _check_words(payloads)
        for payload in payloads["config"].values():
            name = f"{index.rpartition('/')[0]}/{payload['path_name']}"
            if not _TENSORS.fullmatch(name):
                raise _RefusedError(f"`{name}` is an object, and no tensor")
            if payload["use_pickle"]:
                names.add(name)
            elif math.prod(size.get("as_int", 1) for size in payload["tensor_meta"]["sizes"]) > _MOST_ELEMENTS:
                raise _RefusedError(f"`{name}` claims more than {_MOST_ELEMENTS:,} elements")
    return names


def _repickled(name: str, data: bytes) -> bytes:
    """A pickle of tensors, in the bytes that torch itself writes for them."""
    with zipfile.ZipFile(io.BytesIO(data)) as inner:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in inner.infolist()):
            raise _RefusedError(f"`{name}` is compressed, which torch.save never does")
    try:
        value = torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        what = f"names `{named[1]}`" if named else "holds more than tensors"
        raise _RefusedError(f"the pickle `{name}` {what}") from None
    written = io.BytesIO()
    torch.save(value, written)
    return written.getvalue()


def _checked_graph(program: dict[str, Any]) -> dict[str, Any]:
    """The program without guards, which are Python code, and which static shapes do not need."""
    program["guards_code"] = []
    _check_words(program)
    spaces = _NAMESPACES | {target.namespace for target in registered() if hasattr(target, "namespace")}
    for key, value in _leaves(program, ""):
        if key in ("target", "as_operator") and value not in _ALLOWED:
            op = _OP.fullmatch(value)
            if not op or op[1] not in spaces or op[2] in _NO_OPS:
                raise _RefusedError(f"it calls `{value}`, which is no op")
        if key in ("in_spec", "out_spec"):
            _check_pytree(json.loads(value)[1])
    return program


def _check_words(document: object) -> None:
    for key, value in _leaves(document, ""):
        if key not in ("in_spec", "out_spec") and not _WORD.fullmatch(value):
            raise _RefusedError(f"{value[:80]!r} is no name")


def _leaves(value: object, key: str) -> Iterator[tuple[str, str]]:
    """Every text but free ones, with the key it stands under; keys stand under themselves."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield "", name
            if name not in _TEXTS:
                yield from _leaves(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    elif isinstance(value, str):
        yield key, value


def _check_pytree(spec: dict[str, Any]) -> None:
    """A spec of plain containers: the context of another type may name a module to import."""
    if spec["type"] not in _PYTREES:
        raise _RefusedError(f"its inputs or outputs are in a `{spec['type']}`, and no tuple, list or dict")
    keys = json.loads(spec["context"] or "null") or []
    if not all(isinstance(key, str) and _WORD.fullmatch(key) for key in keys):
        raise _RefusedError(f"the keys {spec['context']} are no names")
    for child in spec["children_spec"]:
        _check_pytree(child)
