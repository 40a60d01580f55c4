"""Files of LiteRT's, with its recorded answers, as Vela compiles them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILES = Path(__file__).parent / "frontend" / "tflite"


def compiled(name: str, accelerator: str, folder: Path) -> Path:
    """What Vela makes of the file of that name, in `folder`."""
    command = [sys.executable, "-m", "ethosu.vela", FILES / f"{name}.tflite", "--accelerator-config", accelerator]
    subprocess.run([*command, "--output-dir", folder], check=True, capture_output=True)
    return folder / f"{name}_vela.tflite"
