"""Deformable convolutions of torchvision that a 1x1 convolution of the same input moves, as a run shows them.

A module of two layers whose forward is `deform(x, offset(x))` is one attention layer, whose centres move. No other
forward is read: not one with a mask, with offsets of another input, or with a layer between.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import argument, call_network, foreign_code, running
from conv2attn.errors import Conv2AttnError, UnsupportedError, UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import deformable_as_attention
from conv2attn.layers.theorem.deformable import is_deformable
from conv2attn.networks.conversion.outcomes import CONVERTED, SKIPPED, UNSUPPORTED, ConversionRow
from conv2attn.networks.conversion.replacement import Settings
from conv2attn.networks.copies import copy_network

BETWEEN = "between pixels DeformConv2d is bilinear, and attention a Gaussian around the moved centre"


@final
@dataclass(eq=False)
class Observed:
    """What runs showed of a module with a deformable convolution: whether it is a pair, and its offsets whole."""

    calls: int = 0
    is_pair: bool = True
    is_whole: bool = True
    tensors: list[tuple[Tensor, int]] = field(default_factory=list)

    def begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A call of the pair: with one tensor, which nothing changes in place until it ends."""
        self.calls += 1
        self.is_pair &= len(args) == 1 and isinstance(args[0], Tensor) and not kwargs
        self.tensors = [(each, each._version) for each in args if isinstance(each, Tensor)]

    def moves(self, module: nn.Module, args: Any, kwargs: Any, offsets: Any) -> None:
        """A call of the layer of offsets: with what the pair was called with."""
        self.follows(args, kwargs, 1, offsets)
        self.is_whole &= bool((offsets == offsets.round()).all())

    def samples(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """A call of the deformable convolution: with the same tensor and those offsets, and without a mask."""
        offsets = argument(args, {"offset": None, **kwargs}, 1, "offset")
        mask = argument(args, {"mask": None, **kwargs}, 2, "mask")
        self.follows((args[0], offsets) if args and mask is None else (), {}, 2, output)

    def ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """The pair returns what the deformable convolution did, and no tensor has changed since it was made."""
        self.is_pair &= len(self.tensors) == 3 and output is self.tensors[-1][0]
        self.is_pair &= all(tensor._version == version for tensor, version in self.tensors)
        self.tensors = []

    def follows(self, args: Any, kwargs: Any, arguments: int, output: Any) -> None:
        """The next call took exactly the tensors so far, unchanged, and returned `output`."""
        known = [tensor for tensor, _ in self.tensors]
        same = len(args) == arguments == len(known) and all(a is b for a, b in zip(args, known, strict=True))
        self.is_pair &= same and not kwargs and isinstance(output, Tensor)
        self.tensors += [(output, output._version)] if isinstance(output, Tensor) else []


Pair = tuple[nn.Conv2d, nn.Module]
"""A layer of offsets and the deformable convolution that it moves."""


def pairs_in(network: nn.Module) -> dict[str, Pair | None]:
    """The pairs by the names of their modules, and, as None, the deformable convolutions that are in none."""
    modules = dict(network.named_modules())
    pairs = {name: pair for name, module in modules.items() if (pair := pair_of(module)) is not None}
    paired = {part for pair in pairs.values() for part in pair}
    return pairs | {name: None for name, each in modules.items() if is_deformable(each) and each not in paired}


def pair_of(owner: nn.Module) -> Pair | None:
    """The layer of offsets and the deformable convolution, if `owner` has these two layers and nothing else."""
    children = [*owner.children()]
    deformed = [each for each in children if is_deformable(each)]
    moving = [each for each in children if type(each) is nn.Conv2d]
    alone = not owner._parameters and not owner._buffers and len(children) == 2
    return (moving[0], deformed[0]) if alone and len(deformed) == len(moving) == 1 else None


def observe(network: nn.Module, pairs: Mapping[str, Pair | None], example_input: Any) -> dict[str, Observed]:
    """What a run of a copy of `network` on the example shows of each pair, by the name of its owner."""
    copied, observed = copy_network(network).eval(), dict[str, Observed]()
    names = {module: name for name, module in network.named_modules()}
    for name, pair in pairs.items():
        if pair is not None:
            owner, observed[name] = copied.get_submodule(name), (run := Observed())
            offsets, deformed = (copied.get_submodule(names[part]) for part in pair)
            owner.register_forward_pre_hook(run.begins, with_kwargs=True)
            offsets.register_forward_hook(run.moves, with_kwargs=True)
            deformed.register_forward_hook(run.samples, with_kwargs=True)
            owner.register_forward_hook(run.ends, with_kwargs=True)
    with running(copied, example_input), torch.no_grad():
        call_network(copied, example_input)
    return observed


def attention_of_pair(
    owner: nn.Module, pair: Pair | None, shared: bool, settings: Settings, observed: Observed | None
) -> MultiHeadSelfAttention:
    """The attention layer that computes what `owner` does.

    Raises:
        UnsupportedError: it is no pair, or none as the run shows, is hooked or shared, or samples between pixels
            (C2A101); the settings are not those of moving heads, or the layers have code of their own (C2A106).
        UsageError: alpha is not positive and finite (C2A130).
    """
    if (reason := why_no_pair(owner, pair, shared, settings, observed)) or pair is None:
        remedy = "See deformable_as_attention, which takes the layer of offsets and the convolution that it moves."
        raise UnsupportedError("C2A101", reason, remedy)
    offsets, deformed = pair
    for part, package in (
        (owner, type(owner).__module__.partition(".")[0]),
        (offsets, "torch"),
        (deformed, "torchvision"),
    ):
        if reason := foreign_code(part, (package,)):
            raise UnsupportedError("C2A106", f"{type(part).__name__} {reason}", "Convert it before hooks are added.")
    try:
        layer = deformable_as_attention(offsets, deformed, alpha=settings.alpha, trainable=settings.trainable)
    except UsageError as error:
        if error.code != "C2A007":
            raise
        raise UnsupportedError(error.code, error.found, error.remedy) from error
    assert isinstance(layer, MultiHeadSelfAttention)
    sources = {"query": offsets.weight, "query_bias": offsets.bias, "weight": deformed.weight, "bias": deformed.bias}
    for name, source in sources.items():
        if isinstance(source, Tensor):
            layer.get_parameter(name).requires_grad_(source.requires_grad)
    return layer.train(owner.training)


def why_no_pair(owner: nn.Module, pair: Pair | None, shared: bool, settings: Settings, run: Observed | None) -> str:
    """The reason why `owner` does not become one attention layer; empty where a run showed that it can."""
    if replace(settings, alpha="auto", trainable=False) != Settings():
        return "heads that move with the content take alpha and trainable, and no other settings"
    if pair is None or shared:
        return "a DeformConv2d is read only in a module of its own, together with the Conv2d of its offsets"
    if max(pair[0].kernel_size) > 1:
        return "offsets by a kernel wider than 1x1 are a layer of their own, in front of the attention"
    if run is None or not run.calls:
        return f"whether {type(owner).__name__} computes deform(x, offset(x)) shows in a run on example_input alone"
    if not run.is_pair:
        return f"{type(owner).__name__} does not compute deform(x, offset(x)) on the example input"
    return "" if run.is_whole else f"offsets are not whole pixels on the example input: {BETWEEN}"


def attend_in_pairs(
    network: nn.Module,
    names: Mapping[str, Sequence[str]],
    chosen: Container[str],
    settings: Settings,
    example_input: Any = None,
) -> tuple[nn.Module, dict[str, ConversionRow], dict[str, Conv2AttnError]]:
    """Converts the chosen pairs; returns the network, which is another where it was a pair, rows and errors by name."""
    rows, errors = dict[str, ConversionRow](), dict[str, Conv2AttnError]()
    pairs = pairs_in(network)
    observed = observe(network, pairs, example_input) if pairs and example_input is not None else {}
    for name, pair in pairs.items():
        outcome, reason = SKIPPED, "on request"
        if name in chosen:
            try:
                inside = [all_names for each, all_names in names.items() if each.rpartition(".")[0] == name and each]
                shared = any(len(all_names) > len({*names[name]} - {"(root)"}) for all_names in inside)
                layer = attention_of_pair(network.get_submodule(name), pair, shared, settings, observed.get(name))
                layer.name = name or "attention"
                for parent, _, child in (each.rpartition(".") for each in names[name] if name):
                    network.get_submodule(parent)._modules[child] = layer
                network = network if name else layer
                outcome, reason = CONVERTED, f"equal where offsets are whole pixels, as on the example input; {BETWEEN}"
            except UnsupportedError as error:
                errors[name], outcome, reason = error, UNSUPPORTED, str(error)
        rows[name] = ConversionRow(name, "DeformConv2d", outcome, reason)
    return network, rows, errors
