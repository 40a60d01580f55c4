"""Opens a `.pt2` without running anything that its author put there.

torch.export.load unpickles records, loads compiled libraries, and evaluates symbolic sizes and guards. It imports
modules that the types of results name, and executes Python source with names of the graph in it. So nothing reaches it
but a copy of known records: raw tensors, pickles that torch's restricted unpickler takes, written anew, and a graph.
The graph's names are words, its calls are ops, and its sizes are sums and products.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from tosaic.frontend.program_graph import FileRefusedError, check_words, checked_graph
from tosaic.support.errors import ModelError

_GRAPH = "models/model.json"
_TENSORS = re.compile(r"data/(weights/weight|constants/tensor)_\d+", re.ASCII)
_INDICES = re.compile(r"data/(weights/model_weights|constants/model_constants)_config\.json")
_EXAMPLES = "data/sample_inputs/model.pt"
_FORMAT = ("archive_format", "archive_version", "byteorder", ".data/version")
_UNREAD = re.compile(r"\.data/serialization_id|version|extra(/(?!\.\.)[\w.-]+)+")
_MOST_ELEMENTS = 2**28  # of a tensor that its record does not hold, as one of zeros
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.dtype, torch.device, int, float, complex, bool, str, type(None))
_SYMLINK = 0o120000


def read_program(path: Path) -> ExportedProgram:
    """The program in a `.pt2` file.

    Raises:
        ModelError: the file is missing or damaged, or holds more than a program of ops and tensors.
    """
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    try:
        return torch.export.load(_checked_copy(path))
    except FileRefusedError as error:
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
        records = _records(archive, path)
        pickled = _pickled(archive, records)
        for name, record in records.items():
            data = archive.read(record)
            if name == _GRAPH:
                data = json.dumps(checked_graph(json.loads(data))).encode()
            if name in pickled:
                data = _repickled(name, data)
            checked.writestr(f"program/{name}", data)
    copy.seek(0)
    return copy


def _entries(archive: zipfile.ZipFile, size: int, name: str) -> list[zipfile.ZipInfo]:
    """Those of an archive of `size` bytes, which are no more than that."""
    entries = archive.infolist()
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise FileRefusedError(f"record `{entry.filename}` of {name} is compressed, which PyTorch never does")
    if sum(entry.file_size for entry in entries) > size:
        raise FileRefusedError(f"the records of {name} lie upon each other")
    return entries


def _records(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """The records that are read, by their names below the archive's one folder."""
    entries = _entries(archive, path.stat().st_size, str(path))
    root = entries[0].filename.partition("/")[0] if entries else ""
    records: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename.removeprefix(f"{root}/")
        if entry.external_attr >> 16 & 0o170000 == _SYMLINK:
            raise FileRefusedError(f"record `{entry.filename}` is a symbolic link")
        if name in records:
            raise FileRefusedError(f"there are two records `{entry.filename}`")
        if name in (_GRAPH, _EXAMPLES, *_FORMAT) or _TENSORS.fullmatch(name) or _INDICES.fullmatch(name):
            records[name] = entry
        elif not _UNREAD.fullmatch(name):
            raise FileRefusedError(f"record `{entry.filename}` is none of a program's")
    return records


def _pickled(archive: zipfile.ZipFile, records: dict[str, zipfile.ZipInfo]) -> set[str]:
    """The names of the records that torch unpickles."""
    names = {_EXAMPLES} & set(records)
    for index in filter(_INDICES.fullmatch, records):
        payloads = json.loads(archive.read(records[index]))
        check_words(payloads)
        for payload in payloads["config"].values():
            name = f"{index.rpartition('/')[0]}/{payload['path_name']}"
            if not _TENSORS.fullmatch(name):
                raise FileRefusedError(f"`{name}` is an object, and no tensor")
            if payload["use_pickle"]:
                names.add(name)
                continue
            elements = math.prod(size["as_int"] for size in payload["tensor_meta"]["sizes"])
            if elements > max(_MOST_ELEMENTS, records[name].file_size):
                raise FileRefusedError(f"`{name}` claims more elements than it holds")
    return names


def _repickled(name: str, data: bytes) -> bytes:
    """A pickle of tensors, in the bytes that torch itself writes for them."""
    with zipfile.ZipFile(io.BytesIO(data)) as inner:
        _entries(inner, len(data), f"`{name}`")
    try:
        value = torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        what = f"names `{named[1]}`" if named else "holds more than tensors"
        raise FileRefusedError(f"the pickle `{name}` {what}") from None
    if strange := [type(leaf).__name__ for leaf in tree_leaves(value) if type(leaf) not in _PLAIN]:
        raise FileRefusedError(f"the pickle `{name}` holds a `{strange[0]}`")
    written = io.BytesIO()
    torch.save(value, written)
    return written.getvalue()
