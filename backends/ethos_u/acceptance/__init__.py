"""Which TOSA ops the NPU takes, why not where it does not, and where Vela may err."""

from tosaic.backends.ethos_u.acceptance.table import refusal, supported_ops, suspicion

__all__ = ["refusal", "supported_ops", "suspicion"]
