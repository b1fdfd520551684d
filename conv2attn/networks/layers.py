"""The attention layers of a network: their names, their inputs in a run, and their positions."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from conv2attn.arguments import argument
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention


def attention_layers(network: nn.Module) -> dict[str, MultiHeadSelfAttention]:
    """The attention layers of `network` by name, each once."""
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, MultiHeadSelfAttention)}


def layer_inputs(network: nn.Module, run: Callable[[], Any]) -> dict[str, Tensor]:
    """The last input of each attention layer in a run, by name, in the order in which they first ran."""
    tensors: dict[str, Tensor] = {}

    def keep(layer: nn.Module, args: Any, kwargs: Any) -> None:
        assert isinstance(layer, MultiHeadSelfAttention)
        tensors[names[layer]] = argument(args, kwargs, 0, "input")

    names = {layer: name for name, layer in attention_layers(network).items()}
    hooks = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in names]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return tensors


def encodings_of(network: nn.Module) -> list[Encoding]:
    """The positions of the attention layers of `network`, each once."""
    return list(dict.fromkeys(layer.encoding for layer in attention_layers(network).values()))
