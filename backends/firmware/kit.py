"""The folder that ships: archives and headers of a model, as a CMake package, a CMSIS-Pack and a Zephyr module."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tosaic.backends.cortex_m.kernel import License
from tosaic.backends.firmware import toolchain
from tosaic.backends.npu import Driver
from tosaic.backends.target import Core
from tosaic.support.errors import Error
from tosaic.support.processes import run_tool

CYCLES_PER_NPU_CALL = 770
"""What a call of the NPU takes beside its command stream, with the data cache off: about 550 cycles of the driver for
five regions, with registers that answer at once, and ten for each of its 22 accesses to them."""

_TEMPLATES = toolchain.SOURCES / "kit"
_NAME = re.compile(r"[a-z]\w*\Z", re.ASCII | re.IGNORECASE)
_TAKEN = {"tosaic", "assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits", "locale",
          "math", "setjmp", "signal", "stdalign", "stdarg", "stdatomic", "stdbool", "stddef", "stdint", "stdio",
          "stdlib", "string", "tgmath", "threads", "time", "wchar", "wctype"}  # fmt: skip


def check_name(name: str) -> None:
    """Whether a model may be called so: its symbols begin with it, and its header is called so.

    Raises:
        Error: it is no C identifier, or a header of that name is there already.
    """
    if not _NAME.match(name):
        raise Error(
            f"`{name}` cannot be the name of a model", why="C symbols begin with it", hint="--name keyword_spotter"
        )
    if name.lower() in _TAKEN:
        raise Error(f"`{name}` cannot be the name of a model", why=f"there is a header {name.lower()}.h already")


def prefixed(objects: Sequence[Path], libraries: Sequence[Path], name: str, folder: Path) -> list[Path]:
    """Copies, in `folder`, of objects and of the members of libraries, all of whose symbols begin with `name`.

    So two models with the same kernel, or an application with a CMSIS-NN of its own, do not meet.
    """
    folder.mkdir(parents=True)
    for library in libraries:
        run_tool("llvm-ar-22", ["x", "--output", folder, library])
    for path in objects:
        shutil.copy(path, folder)
    copies = sorted(folder.iterdir())
    if not copies:  # all of the model is on the NPU
        return []
    defined = run_tool("llvm-nm-22", ["--defined-only", "--extern-only", "--format=just-symbols", *copies]).split()
    symbols = sorted({each for each in defined if not each.endswith(":") and not each.startswith(f"{name}_")})
    renamed = folder / "symbols"
    renamed.write_text("".join(f"{symbol} {name}_{symbol}\n" for symbol in symbols))
    for copy in copies:
        run_tool("llvm-objcopy-22", [f"--redefine-syms={renamed}", copy])
    renamed.unlink()
    return copies


def write_kit(
    kit: Path,
    name: str,
    core: Core,
    archives: Sequence[Path],
    drivers: Mapping[str, Driver],
    licenses: Sequence[License],
) -> None:
    """Make packages of the folder `kit`, which holds the headers.

    Args:
        archives: the model's, and those of NPU drivers if it calls an NPU; they are moved.
        drivers: of its NPU, by the end of the archive's name.
        licenses: of what is linked into them.
    """
    for folder in (f"lib/cmake/{name}", "zephyr", "LICENSES"):
        (kit / folder).mkdir(parents=True)
    for archive in archives:
        shutil.move(archive, kit / "lib")
    for part in licenses:
        shutil.copyfile(part.text, kit / "LICENSES" / f"{part.of}.txt")
    cpu = core.name.partition("+")[0]
    values = {
        "name": name,
        "NAME": name.upper(),
        "cpu": cpu,
        "CPU": cpu.upper().replace("-", "_"),
        "Dcore": cpu.title().replace("Plus", "+"),
        "float_abi": core.float_abi,
    }
    components = ""
    for key, driver in drivers.items():
        described = {"driver": key, "variant": driver.title, "description": driver.description}
        components += filled("driver.pdsc", values | described)
    license_ = f"  <license>LICENSES/{escape(licenses[0].of)}.txt</license>\n" if licenses else ""
    pack = filled("package.pdsc", values | {"license": license_, "drivers": components})
    (kit / "lib" / "cmake" / name / f"{name}-config.cmake").write_text(filled("config.cmake", values))
    (kit / f"tosaic.{name}.pdsc").write_text(pack)
    (kit / "zephyr" / "module.yml").write_text(filled("module.yml", values))
    (kit / "zephyr" / "CMakeLists.txt").write_text(filled("CMakeLists.txt", values))
    kconfig = filled("Kconfig", values) + (filled("Kconfig.npu", values) if drivers else "")
    (kit / "zephyr" / "Kconfig").write_text(kconfig)


def filled(template: str, values: dict[str, str]) -> str:
    """A template of the kit with its `@KEY@`s filled in."""
    text = (_TEMPLATES / template).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
