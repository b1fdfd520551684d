"""Plain calls with real numbers: that two are the same, and that no number contradicts an answer.

Both networks are called one after the other, twice beside their runs, and after other images where a call changes them.
"""

import secrets
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.state import taken_apart

FAR = 0.02
"""Two networks count as different if an output differs by this share of the larger of both: rounding hardly ever
changes one function that much."""
CLOSE = 1e-5
"""The same share for outputs that agree but for rounding, which decides nothing but the order of the work."""
Network = Callable[[Tensor], Any]


def called(network: Network, images: Tensor) -> tuple[Any, list[Tensor]]:
    """The structure and the tensors of what a network returns."""
    leaves: list[Tensor] = []
    with torch.no_grad():
        form = taken_apart(network(images.clone()), leaves)
    return form, [each.detach().clone() for each in leaves]


def after_another(network: Network, images: Tensor) -> tuple[Any, list[Tensor]]:
    """What a network returns if its first call had other numbers."""
    generator = torch.Generator().manual_seed(secrets.randbits(60))
    noise = torch.randn(images.shape, generator=generator, device="cpu", dtype=torch.float64)
    with torch.no_grad():
        network(torch.empty_like(images).copy_(noise))
    return called(network, images)


def leaves_of(network: Network, images: Tensor) -> list[Tensor] | None:
    """The tensors that a network returns; None where it raises."""
    try:
        return called(network, images)[1]
    except Exception:
        return None


def far(first: list[Tensor] | None, second: list[Tensor] | None, share: float = FAR) -> bool:
    """Whether one of two results raised, or some tensors of them are far apart, by this share of the larger of both."""
    if (first is None) != (second is None):
        return True
    for a, b in zip(first or (), second or (), strict=False):
        if a.shape != b.shape:
            return True
        one, other = a.double(), b.double()
        finite = a.numel() and bool(one.isfinite().all() and other.isfinite().all())
        if finite and (one - other).abs().max() > share * (one.abs().max() + other.abs().max()):
            return True
    return False
