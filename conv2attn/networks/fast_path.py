"""Switches torch's fast path of attention layers off while networks are traced, also with several threads."""

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

    In evaluation mode torch otherwise runs each as one fused kernel, whose steps cannot be traced.
    """
    mha = torch.backends.mha
    with LOCK:
        # A second thread would save the flag that the first one set, and restore that value.
        BEFORE.append(BEFORE[0] if BEFORE else mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        with LOCK:
            before = BEFORE.pop()
            if not BEFORE:
                mha.set_fastpath_enabled(before)
