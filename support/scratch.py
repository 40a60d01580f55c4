"""Folders that one process holds while it works. What a killed process left is collected by the next one."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "tosaic-work-"
_FULL = 2**16  # bytes


@contextmanager
def held(folder: Path, waits: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """An empty folder of that name, which the body may fill or rename; it is removed at the end.

    It is locked: another process that wants the name calls `waits` and waits. What a killed one left is removed first.

    Raises:
        OSError: the folder cannot be made, or its disk is full.
    """
    lock = None
    try:
        lock = _lock(folder, waits)
        for left in folder.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        yield folder
    except Exception as error:
        if shutil.disk_usage(folder.parent).free < _FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise
    finally:
        if lock is None:  # ended by a signal before it was locked
            _collect(folder)
        else:
            if _is(lock, folder):
                shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


@contextmanager
def temporary_files() -> Iterator[None]:
    """Let the temporary files of this process and its children lie in one folder, which is removed at the end."""
    before, folder = os.environ.get("TMPDIR"), tempfile.gettempdir()
    for left in Path(folder).glob(f"{_PREFIX}*"):
        _collect(left)
    with held(Path(tempfile.mkdtemp(prefix=_PREFIX))) as mine:
        use_for_temporary_files(str(mine))
        try:
            yield
        finally:
            tempfile.tempdir = folder
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before


def use_for_temporary_files(folder: str) -> None:
    """Let the temporary files of this process and of those that it starts from now on lie in `folder`.

    A process that serves one call after the other does so for each: the folder of the call before may be gone.
    """
    tempfile.tempdir = os.environ["TMPDIR"] = folder


def lasting_folder() -> Path:
    """A temporary folder for the user, which stays."""
    here = Path(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix="tosaic-", dir=here.parent if here.name.startswith(_PREFIX) else here))


def _lock(folder: Path, waits: Callable[[], None]) -> int:
    while True:
        with suppress(FileExistsError):
            folder.mkdir()
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                if not _free(lock):
                    waits()
                    fcntl.flock(lock, fcntl.LOCK_EX)
                # The process before may have renamed or removed it meanwhile.
                if _is(lock, folder):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)


def _free(lock: int) -> bool:
    """Lock an open folder, unless another process has."""
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is(lock: int, folder: Path) -> bool:
    return folder.exists() and os.path.samestat(os.fstat(lock), folder.stat())


def _collect(left: Path) -> None:
    """Remove what a killed process of this user left."""
    with suppress(OSError):
        lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        if os.fstat(lock).st_uid == os.getuid() and _free(lock):
            shutil.rmtree(left, ignore_errors=True)
        os.close(lock)
