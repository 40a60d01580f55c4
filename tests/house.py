"""The rooms of the house, and what imports what. `python tests/house.py` prints the picture of ARCHITECTURE.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tosaic"
LINKS = {path.name: path for path in PACKAGE.iterdir() if path.is_symlink()}
FOLDERS = {"tosaic": PACKAGE} | {f"tosaic.{name}": path.resolve() for name, path in LINKS.items()}


def files(folder: Path) -> Iterator[Path]:
    """Every file of a room; the hall's do not stand in the rooms that it links to."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and path.name != "__pycache__":
            yield from files(path)
        elif path.is_file():
            yield path


def imports(source: str) -> Iterator[str]:
    """Every module or name of tosaic that `source` imports, at any depth."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def imports_of_ours(path: Path) -> list[str]:
    """The modules and names of tosaic that a file imports."""
    return [name for name in imports(path.read_text(encoding="utf-8")) if is_inside(name, "tosaic")]


FILES = [(room, path) for room, folder in FOLDERS.items() for path in files(folder) if path.suffix == ".py"]
HALL = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for room, path in FILES if room == "tosaic"}


def _module(name: str) -> str:
    """The module of the hall that an imported name is, or comes from; empty for one of no module of it."""
    return next((known for known in (name, name.rpartition(".")[0]) if known in HALL), "")


def imported_in_the_hall(module: str) -> set[str]:
    """The modules of the hall that a module imports."""
    return set(map(_module, imports_of_ours(HALL[module]))) - {"", module}


def wing(module: str) -> str:
    """The folder of a module of the hall; `cli` is that of the command line, the API and what else stands over all."""
    return module.split(".")[1] if module.count(".") > 1 else "cli"


def _place(name: str) -> str:
    """The wing or room of an imported name; none for a name of the package itself, as its version."""
    folder = name.split(".")[1] if "." in name else ""
    if f"tosaic.{folder}" in FOLDERS:
        return folder
    module = _module(name)
    return wing(module) if module else ""


def _arrows() -> dict[str, set[str]]:
    """What each wing and room imports."""
    found: dict[str, set[str]] = {}
    for room, path in FILES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        source = wing(module) if room == "tosaic" else room.removeprefix("tosaic.")
        found.setdefault(source, set()).update(_place(name) for name in imports_of_ours(path))
    return {source: targets - {source, ""} for source, targets in found.items()}


def _reached(arrows: dict[str, set[str]], source: str) -> set[str]:
    return {one for target in arrows[source] for one in (target, *_reached(arrows, target))}


def picture() -> str:
    """A Mermaid flowchart of wings and rooms; an arrow stands only where no longer way leads there."""
    arrows = _arrows()
    rooms = [name.removeprefix("tosaic.") for name in FOLDERS if name != "tosaic"]
    lines = [
        "flowchart TD",
        "  subgraph tosaic",
        *(f"    {name}" for name in sorted(arrows) if name not in rooms),
        "  end",
    ]
    for source in sorted(arrows):
        direct = arrows[source]
        ways = {one for target in direct for one in _reached(arrows, target)}
        lines += [f"  {source} --> {target}" for target in sorted(direct - ways)]
    return "\n".join(lines)


if __name__ == "__main__":
    print(picture())
