"""The command line. Each command reads its options, calls one function of a wing, and shows what came back."""

from tosaic.cli.main import main

__all__ = ["main"]
