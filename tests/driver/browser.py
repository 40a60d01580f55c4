"""A page in headless Chromium, without a network."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_PATIENCE = 120


@dataclass(frozen=True)
class Shown:
    """Args:
    document: the page's HTML after its scripts have run.
    complaints: what the browser's console says beside information.
    """

    document: str
    complaints: list[str]


def show(page: Path, picture: Path | None = None, size: str = "1600,2400") -> Shown:
    """Load `page`, and draw what it shows into `picture`."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            "chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", f"--window-size={size}",
            f"--user-data-dir={profile}", f"--screenshot={picture}" if picture else "--dump-dom", page.as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    said = re.findall(r":(?:INFO|WARNING|ERROR):CONSOLE(?::|\()\d+\)?\] (.*)", done.stderr)
    return Shown(done.stdout, [line for line in said if not line.startswith('"[bokeh ')])
