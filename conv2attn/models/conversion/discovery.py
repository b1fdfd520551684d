"""How a network's functional convolutions are found: by running it on an example, or in its code without one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from torch import nn

from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.models.conversion.code import UNKNOWN, mentions
from conv2attn.models.conversion.functional import FUNCTIONS, OTHER_FUNCTIONS, FunctionalCall, unconverted
from conv2attn.models.conversion.recording import copy_network, is_stock, record
from conv2attn.theorem import STOCK

__all__ = ["Discovery", "copy_network", "discover"]
CALLED = {
    **{id(function): name for function, (name, _) in FUNCTIONS.items()},
    **{id(function): function.__name__ for function in OTHER_FUNCTIONS},
}
ATTENTION = MultiHeadSelfAttention(1, 1, QuadraticEncoding([[0.0]], 1.0))


@final
@dataclass(frozen=True)
class Discovery:
    """The functional convolutions of a network, and how they were looked for.

    `read` names the convolution layers of which others read what no attention layer has, with the reason; `ran` the
    modules that ran, if the network was run.
    """

    calls: tuple[FunctionalCall, ...]
    looked: str
    read: Mapping[str, str]
    ran: frozenset[str] | None = None


def discover(network: nn.Module, example: Any) -> Discovery:
    """The functional convolutions of `network`: on `example` if there is one, else those that its code mentions."""
    mentioned = read_code(network)
    if example is None:
        return mentioned
    recorder = record(copy_network(network), example)
    read = {call.weight_of: f"its weight is read by {call.name}" for call in recorder.calls.values() if call.weight_of}
    calls = tuple(recorder.calls.values())
    return Discovery(calls, "checked on the example input", {**mentioned.read, **read}, frozenset(recorder.ran))


def read_code(network: nn.Module) -> Discovery:
    """Finds calls in the code of `network`, and its reads of convolution layers, without running it."""
    names = {module: name for name, module in network.named_modules()}
    calls: dict[tuple[str, str], FunctionalCall] = {}
    read: dict[str, str] = {}
    for mention in mentions(network):
        owner = names[mention.module]
        computed_by_layer = isinstance(mention.module, (*STOCK, MultiHeadSelfAttention))
        if (function := CALLED.get(id(mention.value))) and not computed_by_layer:
            calls[owner, function] = unconverted(owner, function, f"calls {function}")
        for layer in mention.module.modules() if mention.holder is UNKNOWN else (mention.holder,):
            outside = layer is not mention.module or is_stock(layer)
            if outside and isinstance(layer, STOCK) and lacks(layer, mention.name):
                read.setdefault(names[layer], f"the network's own code reads its {mention.name}")
        if isinstance(mention.value, type) and issubclass(mention.value, nn.Module):
            for layer in mention.module.modules():
                if isinstance(layer, STOCK) and isinstance(layer, mention.value) and mention.value is not nn.Module:
                    read.setdefault(names[layer], "the network's own code asks for its class")
    return Discovery(tuple(calls.values()), "read in the code", read)


def lacks(layer: nn.Module, name: str) -> bool:
    """Whether `layer.name` is not there any more, or something else, once attention takes the place of `layer`."""
    parts = (*layer._parameters, *layer._modules, "weight", "padding")
    of_class = hasattr(type(layer), name) and not name.startswith("__")
    return (name in parts and name != "bias") or (of_class and not hasattr(ATTENTION, name))
