"""Plain calls with real numbers: checks that repeated calls agree and that no number contradicts an answer.

Both networks are called in turn, twice besides their runs, and after other images in case a call changes them.
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
"""The same share for outputs that agree up to rounding; it only decides the order of the work."""
Network = Callable[[Tensor], Any]


def called(network: Network, images: Tensor) -> tuple[Any, list[Tensor]]:
    """The structure and the tensors of a network's output."""
    leaves: list[Tensor] = []
    with torch.no_grad():
        form = taken_apart(network(images.clone()), leaves)
    return form, [each.detach().clone() for each in leaves]


def after_another(network: Network, images: Tensor) -> tuple[Any, list[Tensor]]:
    """A network's output after a first call with other numbers."""
    generator = torch.Generator().manual_seed(secrets.randbits(60))
    noise = torch.randn(images.shape, generator=generator, device="cpu", dtype=torch.float64)
    with torch.no_grad():
        network(torch.empty_like(images).copy_(noise))
    return called(network, images)


def leaves_of(network: Network, images: Tensor) -> list[Tensor] | None:
    """The tensors that a network returns; None if it raises."""
    try:
        return called(network, images)[1]
    except Exception:
        return None


def far(first: list[Tensor] | None, second: list[Tensor] | None, share: float = FAR) -> bool:
    """Whether one of two calls raised, or some of their tensors differ by more than this share of the larger one."""
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
