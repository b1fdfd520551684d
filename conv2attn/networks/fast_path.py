"""torch's fast path of attention layers is off while networks are followed, in several threads too."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

LOCK = threading.Lock()
BEFORE = list[bool]()
"""The flag as it was, once for each context that is active."""


@contextmanager
def without_fast_path() -> Iterator[None]:
    """While active, torch runs `nn.MultiheadAttention` and encoder layers by their documented operators.

    In evaluation mode torch otherwise runs each as one fused kernel, which is no formula that can be followed.
    """
    mha = torch.backends.mha
    with LOCK:
        # A second thread would read the flag as the first one set it, and leave it so.
        BEFORE.append(BEFORE[0] if BEFORE else mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        with LOCK:
            before = BEFORE.pop()
            if not BEFORE:
                mha.set_fastpath_enabled(before)
