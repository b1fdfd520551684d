"""Pairs the layers of two networks, as values, and finds the first difference of the code between them."""

from dataclasses import dataclass
from typing import final

from torch import nn
from torch.nn.parameter import is_lazy

from conv2attn.equality.asked import like_weights
from conv2attn.equality.certificate.results import ROOT
from conv2attn.equality.layers.bases import comparable_basis
from conv2attn.equality.layers.compared_layers import Layer, function_layers
from conv2attn.equality.layers.rows import LayerPair
from conv2attn.equality.twins.lockstep import Lockstep
from conv2attn.errors import Conv2AttnError, UnsupportedError
from conv2attn.layers.theorem import STOCK
from conv2attn.networks.conversion.computed_weights import describe
from conv2attn.networks.conversion.outcomes import SKIPPED, ConversionRow, remembered
from conv2attn.torch_internals import COMPILED


@final
@dataclass(frozen=True)
class Pairs:
    """The structure of two networks, before either runs.

    Args:
        difference: the first difference between the layers, in words; empty for the same code.
        layers: the pairs that can be read, by the names of their modules or of the owners of functions.
        refused: layers that cannot be read, by name, with a description and the reason.
    """

    difference: str
    layers: dict[str, list[LayerPair]]
    refused: dict[str, tuple[str, Conv2AttnError]]


def read_pairs(original: nn.Module, network: nn.Module) -> Pairs:
    """Walks both networks in lockstep and reads their layers.

    Raises:
        UnsupportedError: a network runs as compiled code (C2A106), or has no weights yet (C2A103).
    """
    check_readable(original, "first")
    check_readable(network, "second")
    walk = Lockstep(original, network)
    skipped = {row.name for row in conversions(network).values() if row.outcome == SKIPPED}
    pairs, refused = dict[str, list[LayerPair]](), dict[str, tuple[str, Conv2AttnError]]()
    for name, mine, other in walk.layers:
        try:
            first, second = Layer(name, mine, comparable_basis(mine)), Layer(name, other, comparable_basis(other))
            pairs[name] = [LayerPair(first, second, skipped=name in skipped)]
        except Conv2AttnError as error:
            signature = describe(mine) if isinstance(mine, STOCK) else type(mine).__name__
            refused[name or ROOT] = signature, error
    like = like_weights(original)
    # Both networks may be converted: then the first's attention replaces its functions.
    for name, (before, calls) in walk.calls.items():
        try:
            layers = {geometry: [first, second] for geometry, first, second in function_layers(name, calls, like)}
            if before is not None:
                for geometry, _, attention in function_layers(name, before, like):
                    if geometry in layers:
                        layers[geometry][0] = attention
            pairs[name] = [LayerPair(first, second) for first, second in layers.values()]
        except Conv2AttnError as error:
            refused[str(calls.layers[0].name)] = "functional convolutions", error
    return Pairs(walk.difference, pairs, refused)


def check_readable(network: nn.Module, which: str) -> None:
    """Refuses a network of which a module runs as compiled code or has no weights yet.

    Raises:
        UnsupportedError: a module is compiled (C2A106), or has no weights (C2A103).
    """
    for name, module in network.named_modules():
        of_which = f"{name or 'the network'} of the {which}"
        dynamo = type(module).__module__ == COMPILED
        if dynamo or vars(module).get("_compiled_call_impl") is not None:
            sentence = f"{of_which} runs as compiled code, which cannot be read: pass it uncompiled"
            raise UnsupportedError("C2A106", sentence, "Compile it afterwards.")
        if any(is_lazy(each) for each in module._parameters.values()):
            sentence = f"{of_which} has no weights before its first call: call it once"
            raise UnsupportedError("C2A103", sentence, "Call it on an input first.")


def conversions(network: nn.Module) -> dict[str, ConversionRow]:
    """The outcomes of the conversion that made `network`, by name; none if it was made otherwise."""
    conversion = remembered(network)
    return {row.name: row for row in conversion.rows} if conversion else {}
