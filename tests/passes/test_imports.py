"""The packages of passes stand side by side: what two of them need lies beside them or in support."""

import ast
from pathlib import Path

import pytest

from tosaic import passes

ROOM = Path(passes.__path__[0])
PACKAGES = sorted(path.name for path in ROOM.iterdir() if (path / "__init__.py").exists())


def imported(package: str) -> set[str]:
    """The packages of passes that the files of `package` name in an import."""
    found = set()
    for file in (ROOM / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            found |= set(names[2:3]) if names[:2] == ["tosaic", "passes"] else set()
    return found


def test_the_packages():
    assert PACKAGES == ["fuse", "layout", "npu", "place", "quantize"]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_imports_another(package):
    assert package in imported(package) or package in ("fuse", "npu")
    assert imported(package) & set(PACKAGES) <= {package}
