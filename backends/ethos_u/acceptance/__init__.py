"""Which TOSA ops the NPU takes, and why not where it does not."""

from tosaic.backends.ethos_u.acceptance.table import supported_ops, verdict

__all__ = ["supported_ops", "verdict"]
