"""When Python looks for garbage."""

import gc

_OBJECTS = 200_000


def collect_rarely() -> None:
    """Let this process make more objects before Python looks for garbage among them.

    Modules, graphs and trees of kernels are millions of objects that stay. To look through them while they grow takes
    a quarter of a small compilation and a tenth of making kernels, and finds next to none.
    """
    gc.set_threshold(_OBJECTS)
