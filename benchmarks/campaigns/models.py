"""A random module through the whole way: compiled, proven, run, and compared.

Modules are small and none is tuned: 1.3 CPU seconds each, of which PyTorch's export and the kernels' proofs take half.
Each is compiled for one target, in rotation, every tenth for all of them; every tenth has int16 activations. Fifty
share a process.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import tosaic
from benchmarks.campaigns import random_modules
from benchmarks.campaigns.trials import Here, Outcome
from tosaic.builds.accuracy import NOISY_DB
from tosaic.compiler.options import QuantizationOptions, Tuning
from tosaic.runs.running import random_samples, run_build
from tosaic.runs.verification import verify_build
from tosaic.terminal.console import quiet_libraries

TARGETS = ("cortex-m55", "corstone-300", "corstone-320", "cortex-m4", "cortex-m0plus", "cortex-m33")


def trial(seed: int, targets: Sequence[str] = TARGETS) -> Outcome:
    """Module `seed` on one of the targets or, every tenth, on all; the worst of what became of it."""
    chosen = targets if seed % 10 == 0 else (targets[seed % len(targets)],)
    outcomes = [_on(target, seed) for target in chosen]
    return next((outcome for outcome in outcomes if outcome.fault), outcomes[-1])


def _on(target: str, seed: int) -> Outcome:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tosaic-campaign-") as name, quiet_libraries():
        folder = Path(name)
        try:
            build = tosaic.compile(
                f"{random_modules.__file__}:seed_{seed}",
                target=target,
                quantization=QuantizationOptions("int16" if seed % 10 == 9 else "int8"),
                tuning=Tuning(records=folder / "records.db", executor=Here()),
                output=folder / "build",
            )
            samples = random_samples(build, 2, seed)
            report = run_build(build, samples)
            judged = None if report.defined else verify_build(build, samples)
        except tosaic.Error as error:
            return Outcome("refused", str(error), fault=_is_ours(error))
        except Exception as error:
            return Outcome("raises", f"{target}: {type(error).__name__}: {error}", fault=True)
        if not report.exact and report.defined:
            return Outcome("differs", f"{target}: {report.difference}", fault=True)
        if judged and judged.begins:
            return Outcome("beyond bounds", f"{target}: {judged.begins}", fault=True)
        noisy = [one for one in build.manifest.accuracy if one.sqnr_db is not None and one.sqnr_db < NOISY_DB]
        said = " ".join(str(warning) for warning in build.manifest.warnings)
        if any(f"`{one.name}`" not in said for one in noisy):
            return Outcome("noisy", f"{noisy}, and no warning says so", fault=True)
        if noisy:
            return Outcome("noisy and said so", said)
        unknown = [call.judgement for call in judged.calls if call.judgement.startswith("unknown")] if judged else []
        if unknown:
            return Outcome("not judged", "; ".join(unknown))
        return Outcome("within bounds" if judged else "exact")


def _is_ours(error: tosaic.Error) -> bool:
    """Whether a refusal is a fault of tosaic's: every module was run by PyTorch on these very inputs."""
    ours = ("computes something else", "does not compute the integer module", "no kernel of", "invalid module",
            "is not valid", "did not accept", "cannot serialize", "does not link", "failed")  # fmt: skip
    return any(words in error.what for words in ours)
