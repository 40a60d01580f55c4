"""Child processes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO

from tosaic.support.errors import BackendError
from tosaic.support.garbage import collect_rarely


@dataclass(frozen=True)
class Tool:
    """A program that a compilation needs.

    Args:
        packages: of Debian.
        use: what it is for.
    """

    packages: str
    use: str


TOOLS = {
    "clang-22": Tool("clang-22", "compiles kernels and firmware"),
    "ld.lld-22": Tool("lld-22", "links firmware"),
    "llvm-ar-22": Tool("llvm-22", "makes the archives that ship"),
    "arm-none-eabi-gcc": Tool("gcc-arm-none-eabi libnewlib-arm-none-eabi", "knows where newlib, the C library, lies"),
    "gcc": Tool("gcc", "builds the simulator's counting plugin"),
    "qemu-system-arm": Tool("qemu-system-arm", "executes firmware: proof, tuning, `tosaic run`"),
}
"""Each program that a compilation needs."""

_ERRORS_SHOWN, _LAST_WORDS = 4, 400
_VERSION = re.compile(r"-(\d+)$")
_SETPRIV = "/usr/bin/setpriv"  # of util-linux


def ends_with_parent(command: Sequence[str]) -> list[str]:
    """The command line under which `command` is killed when the thread that starts it ends, however that ends.

    Where there is no setpriv, the command as it is.
    """
    return [_SETPRIV, "--pdeathsig", "KILL", *command] if Path(_SETPRIV).exists() else list(command)


def confined(command: Sequence[str], folder: Path) -> list[str]:
    """The command line under which `command` writes nowhere but in `folder`, reaches no network, and ends as above.

    Where there is no bubblewrap, or the kernel grants it no namespaces, `command` is not confined.
    """
    jail = _jail()
    return [*jail, "--bind", str(folder), str(folder), "--", *command] if jail else ends_with_parent(command)


def variable(name: str) -> str:
    """The environment variable that names another program in the place of `name`: `TOSAIC_LLVM_AR` for `llvm-ar-22`."""
    return "TOSAIC_" + re.sub(r"\W", "_", _VERSION.sub("", name)).upper()


def program(name: str) -> str | None:
    """The path of a program: what its variable names, `name` itself, or the one without a version in its name that has
    that version; None where there is none."""
    if given := os.environ.get(variable(name)):
        return shutil.which(given)
    plain, version = _VERSION.sub("", name), _VERSION.search(name)
    found = shutil.which(name)
    if found or not version or not (other := shutil.which(plain)):
        return found
    return other if _major(other) == version[1] else None


def said_version(path: str) -> str:
    """The first number with dots that a program says of itself, else all that it says."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    number = re.search(r"\d+(\.\d+)+", said)
    return number[0] if number else said.strip()


@cache
def _major(path: str) -> str:
    return said_version(path).partition(".")[0]


def installed(name: str) -> str:
    """The path of a program; see `program`.

    Raises:
        BackendError: it is not installed; the message names all of `TOOLS` that are missing.
    """
    path = program(name)
    if path is None:
        missing = {name: tool.packages for name, tool in TOOLS.items() if program(name) is None}
        names = " and ".join(f"`{tool}`" for tool in missing or (name,))
        packages = " ".join(dict.fromkeys(missing.values())) or name
        raise BackendError(
            f"{names} {'is' if len(missing) < 2 else 'are'} not installed",
            hint=f"apt-get install {packages}; {variable(name)} and its like name other programs",
        )
    return path


def run_tool(name: str, arguments: Sequence[str | Path], stdin: str = "") -> str:
    """Run a program and return its stdout.

    Raises:
        BackendError: it is not installed, or it failed; the message carries its words.
    """
    done = subprocess.run([installed(name), *map(str, arguments)], input=stdin, capture_output=True, text=True)
    if done.returncode:
        raise BackendError(f"`{name}` failed", why=errors_of(done.stderr))
    return done.stdout


def errors_of(stderr: str) -> str:
    """The first errors that a compiler or linker told, without the source around them; where none, its last words."""
    errors = [line for line in stderr.splitlines() if "error: " in line and not line.startswith("collect2: ")]
    return "\n".join(errors[:_ERRORS_SHOWN]) or stderr.strip()[-_LAST_WORDS:]


class Server:
    """A Python module that runs in a process of its own and reads from a pipe, which it opens by `served`.

    It stands in a process group of its own, so that Ctrl-C reaches only the parent, and prints nothing but to `stderr`.
    """

    def __init__(self, module: str, stderr: int | BinaryIO = subprocess.DEVNULL) -> None:
        self.pipe, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                ends_with_parent([sys.executable, "-P", "-m", module, str(theirs.fileno())]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        # That it has ended at once is noticed where its answer is read.
        with contextlib.suppress(OSError):
            self.pipe.send(sys.path)

    def kill(self) -> None:
        """Kill the process with all that it started in its group, and close the pipe."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.pipe.close()


def served() -> Connection:
    """The pipe of the `Server` whose process this is; the parent's import path is this process's, too."""
    collect_rarely()
    pipe = Connection(int(sys.argv[1]))
    sys.path[:] = pipe.recv()
    return pipe


@cache
def _jail() -> tuple[str, ...]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return ()
    jail = (bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-all", "--die-with-parent", "--new-session")
    return jail if subprocess.run([*jail, "--", "true"], capture_output=True).returncode == 0 else ()
