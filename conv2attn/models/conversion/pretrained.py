"""A converted network of transformers says, when it is saved by transformers, that another one is rebuilt from that."""

import warnings
from typing import Any, final

from torch import nn

from conv2attn.errors import Conv2AttnWarning

METHOD = "save_pretrained"


@final
class WarnedSave:
    """`save_pretrained` of `owner`, which warns first."""

    def __init__(self, owner: nn.Module):
        self.owner = owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Warns (C2A310), and saves as the class of the owner does."""
        name = type(self.owner).__name__
        warnings.warn(Conv2AttnWarning("C2A310", f"from_pretrained builds the convolutions of {name} again"))
        return getattr(type(self.owner), METHOD)(self.owner, *args, **kwargs)


def warn_at_save(network: nn.Module) -> None:
    """Puts the warning in front of `save_pretrained`, in a network that has it."""
    if callable(getattr(type(network), METHOD, None)):
        vars(network)[METHOD] = WarnedSave(network)
