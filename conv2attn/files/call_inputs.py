"""Reads the inputs of a network's call from a file: several tensors in order, or values by argument name.

Examples: `np.savez("call.npz", x, memory)`, `torch.save({"input_ids": ids, "attention_mask": mask}, "call.pt")`.
"""

from collections.abc import Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.arguments import first_weight, tensors_in
from conv2attn.equality.asked import size_in_words
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.files.array_files import content_in
from conv2attn.files.input_images import IMAGE_ENTRIES, PASS_IMAGES, PICTURE_ENDINGS
from conv2attn.networks.specimens import Arguments, is_mask
from conv2attn.torch_internals import tree_map

PASS_CALL = "Pass what forward takes: a tensor, a tuple of them, or a dictionary by the names of its arguments."
LABELS = "labels"
BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def read_call(path: str, network: nn.Module) -> tuple[Arguments, str] | None:
    """The inputs of a call of `network` in a file, and a description; None for a file of images or of one tensor.

    Floating-point numbers are cast to the dtype of the network; arrays without axes become plain numbers.

    Args:
        path: .npz, .safetensors, or a file of torch.save; other kinds cannot store a call.
    Raises:
        CheckpointError: the file is missing (C2A301), damaged (C2A302) or too large (C2A307), or has entries other than
            tensors and plain values, or non-finite numbers outside masks (C2A303).
        UsageError: the file names arguments that the call does not take (C2A006).
    """
    place = Path(path)
    if place.is_dir() or place.suffix.lower() in (*PICTURE_ENDINGS, ".npy"):
        return None
    content = content_in(place, PASS_IMAGES)
    if isinstance(content, Mapping) and [*content] == [f"arr_{number}" for number in range(len(content))]:
        content = tuple(content.values())  # numpy.savez numbers unnamed arrays
    if not is_call(content, network, path):
        return None
    like = first_weight(network)

    def read(leaf: Any) -> Any:
        return as_argument(leaf, path, torch.float32 if like is None else like.dtype)

    values = tree_map(read, dict(content) if isinstance(content, Mapping) else tuple(content))
    call = Arguments((), values) if isinstance(values, dict) else Arguments(values, {})
    sizes = " and ".join(map(size_in_words, tensors_in(values)))
    return call, f"the inputs of {place.name} ({sizes})"


def is_call(content: Any, network: nn.Module, path: str) -> bool:
    """Whether the content of a file is several inputs of a call, rather than images with other entries.

    Raises:
        UsageError: only some of its names are arguments of the call (C2A006).
    """
    if not isinstance(content, Mapping):
        return isinstance(content, list | tuple) and len(content) > 1
    taken = signature(network.forward).parameters.values()
    names = [each.name for each in taken if each.kind in BY_NAME]
    arguments_named = [key for key in content if key in names]
    if len(content) < 2 and arguments_named == names[:1]:
        return False  # a single tensor for the first argument is read as images
    further = next((each.annotation for each in taken if each.kind is Parameter.VAR_KEYWORD), None)
    # Libraries that write **kwargs: Unpack[Keywords] list the valid names. Others accept any, and a network that
    # ignores a misspelt mask would be judged without it.
    listed = [key for kind in get_args(further) for key in getattr(kind, "__annotations__", ())]
    others = [key for key in content if key not in (*names, *listed)]
    if further is not None and not listed and all(isinstance(key, str) for key in others):
        others = []
    # Pictures are often stored with labels, which are not an input even if forward accepts them for a loss.
    if not arguments_named or (arguments_named == [LABELS] and any(each in others for each in IMAGE_ENTRIES)):
        return False
    if not others:
        return True
    sentence = f"{path} holds {str(others[0])[:60]!r}, which is not an argument of {type(network).__name__}.forward"
    raise UsageError("C2A006", sentence, f"Name its entries as the arguments: {', '.join(names[:12])}.")


def as_argument(leaf: Any, path: str, dtype: torch.dtype) -> Any:
    """A value of a file as an argument of a call.

    Raises:
        CheckpointError: the value is an object or a text in an array, or not finite outside a mask (C2A303).
    """
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fiubc":
        leaf = torch.from_numpy(leaf) if leaf.ndim else leaf.item()
    if isinstance(leaf, Tensor):
        if not (leaf.isfinite().all() or is_mask(leaf)):
            raise CheckpointError("C2A303", f"{path} holds numbers that are not finite", "Pass finite inputs.")
        return leaf.to(dtype) if leaf.is_floating_point() else leaf
    if leaf is None or isinstance(leaf, str | bool | int | float):
        return leaf
    raise CheckpointError("C2A303", f"{path} holds a {type(leaf).__name__} among its inputs", PASS_CALL)
