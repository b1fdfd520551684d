"""State dicts whose names transformers itself maps to those of its models."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from conv2attn.checkpoints.fitting import listed
from conv2attn.errors import CheckpointError

UNREAD = "pooler."


def fill_by_transformers(
    network: Any, tensors: Mapping[str, Tensor], path: str, name: str
) -> tuple[nn.Module, tuple[str, ...]]:
    """A network of the same class and configuration with these weights, and what was assumed.

    A missing pooler keeps fresh weights, which is said: no attention and no convolution comes after it.

    Raises:
        CheckpointError: weights are missing, left over, or of another shape (C2A304).
    """
    try:
        model, told = type(network).from_pretrained(
            None, config=network.config, state_dict=dict(tensors), output_loading_info=True
        )
    except (RuntimeError, ValueError, OSError, KeyError, TypeError) as error:
        raise CheckpointError("C2A304", f"{path} does not fit {name} ({str(error).splitlines()[0]})") from error
    pooler = sorted(key for key in told["missing_keys"] if key.startswith(UNREAD))
    lists = {
        "missing": sorted(key for key in told["missing_keys"] if not key.startswith(UNREAD)),
        "unexpected": sorted(told["unexpected_keys"]),
        "of another shape": sorted(str(each) for each in told["mismatched_keys"]),
    }
    if any(lists.values()):
        found = "; ".join(f"{len(keys)} {what}: {listed(keys)}" for what, keys in lists.items() if keys)
        raise CheckpointError("C2A304", f"{path} does not fit {name}: {found}", "Pass the state dict of such a model.")
    return model, (f"the pooler is not stored and has fresh weights ({listed(pooler)})",) if pooler else ()
