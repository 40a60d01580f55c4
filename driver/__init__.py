"""tosaic compiles PyTorch models for Arm microcontrollers, exact to the bit."""

from tosaic.support.errors import Error

__version__ = "0.1.0"
__all__ = ["Error", "__version__"]
