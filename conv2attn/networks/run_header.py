"""Describes the inputs of a run in one line; all measured numbers of a report refer to them."""

from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.arguments import first_weight
from conv2attn.networks.reading.watch import SEED
from conv2attn.torch_internals import tree_leaves

DIGITS = 12
"""Hexadecimal digits of a hash: two sets of images coincide by chance in 1 of 3e14 pairs."""


def run_header(network: nn.Module, inputs: Any) -> str:
    """The tensors with their sizes, dtype, device and hash, the network's dtype and device, the seed and the versions.

    A loader is only named, since reading it again may give other batches.
    """
    whole = isinstance(inputs, Tensor | Mapping | tuple | list)
    tensors = [each for each in tree_leaves(plain(inputs)) if isinstance(each, Tensor)] if whole else []
    words = [of_tensors(tensors) if tensors else "batches of a loader"]
    if (weight := first_weight(network)) is not None:
        words.append(f"network in {short(weight.dtype)} on {weight.device}")
    versions = ", ".join(f"{name} {version(name)}" for name in ("conv2attn", "torch"))
    return "; ".join([*words, f"seed {SEED}", versions])


def plain(inputs: Any) -> Any:
    """Mappings of other classes, such as a tokenizer's, as dictionaries."""
    return dict(inputs) if isinstance(inputs, Mapping) else inputs


def of_tensors(tensors: list[Tensor]) -> str:
    """Sizes, dtypes and devices of tensors, and one hash of all their numbers."""
    digest = sha256()
    for each in tensors:
        # Bytes rather than numbers, since NumPy has no bfloat16.
        digest.update(each.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    kinds = dict.fromkeys(f"{'x'.join(map(str, each.shape))} {short(each.dtype)} on {each.device}" for each in tensors)
    return f"{', '.join(kinds)} (sha256 {digest.hexdigest()[:DIGITS]})"


def short(dtype: torch.dtype) -> str:
    """The name of a dtype without its package."""
    return str(dtype).removeprefix("torch.")
