"""Long campaigns against tosaic itself; `make test` runs a slice of each.

    python benchmarks/campaign.py models --count 2000      # random PyTorch modules through the whole way
    python benchmarks/campaign.py models --target cortex-m4 --target cortex-m0plus --count 200
    python benchmarks/campaign.py files --count 17000      # damaged files of every kind
    python benchmarks/campaign.py files --first 3 --step 17 --count 1000   # of the fourth kind
    python benchmarks/campaign.py targets                  # DS-CNN for every ready target
    python benchmarks/campaign.py bugs                     # bugs planted in the compiler
    python benchmarks/campaign.py kills --count 30         # a tuning run, killed at random moments
    python benchmarks/campaign.py disk                     # a full disk; needs the right to mount one

Each prints what is a fault, by the number that `--first N --count 1` repeats, then its counts, and exits with 1 where
there was one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.campaigns import files, kills, models, planted_bugs, targets
from benchmarks.campaigns.trials import Outcome, Tally, run_all
from tosaic.support.scratch import temporary_files
from tosaic.terminal.console import ended_by_sigterm


@click.group()
def main() -> None:
    """Long campaigns against tosaic itself."""


def _command(name: str, trial: Callable[..., Outcome], count: int, *options: Callable) -> None:
    @main.command(name, help=(trial.__doc__ or "").splitlines()[0])
    @click.option("--first", default=0, show_default=True)
    @click.option("--count", default=count, show_default=True)
    @click.option("--step", default=1, show_default=True, help="From one number to the next.")
    def run(first: int, count: int, step: int, **given: object) -> None:
        tally = Tally()
        with ended_by_sigterm(), temporary_files():
            try:
                for number, outcome in run_all(partial(trial, **given), range(first, first + count * step, step)):
                    tally.note(f"{name} {number}", outcome)
            finally:
                tally.print_counts()
        if tally.faults:
            raise SystemExit(1)

    for option in options:
        option(run)


_TARGETS = click.option("--target", "targets", multiple=True, default=models.TARGETS, show_default=True)

_command("models", models.trial, 2000, _TARGETS)
_command("files", files.trial, 1000)
_command("targets", targets.trial, len(targets.NAMES))
_command("bugs", planted_bugs.trial, len(planted_bugs.BUGS))
_command("kills", kills.kill_trial, 6)
_command("disk", kills.disk_trial, 24)


if __name__ == "__main__":
    main()
