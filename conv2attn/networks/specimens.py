"""Inputs for a network if the user passes none: the network's library states their kind, shape and range.

A specimen of BERT, for example: `Specimen(ids of 1x5, "1 random sequence of 5 ids below 30522 (seed 0)")`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from conv2attn.networks.provenance import input_size_of, published_size
from conv2attn.torch_internals import tree_leaves, tree_map_only

IDS, WAVES, SPECTRA = "input_ids", "input_values", "input_features"
"""Main inputs other than images, by their names in transformers."""
WHOLE = (torch.int16, torch.int32, torch.int64)
"""Dtypes of ids."""
FRAMES = 20
"""A wave is made long enough for this many outputs of the network's convolutions."""
DECODED = 3
"""Number of tokens for a decoder."""
FARTHEST = -5e3
"""A tensor of 0, 1 and numbers below this is an attention mask."""


class Arguments(NamedTuple):
    """The positional and the named arguments of a call."""

    positional: tuple[Any, ...]
    named: dict[str, Any]


Inputs = Tensor | Mapping[str, Any] | Arguments
"""The inputs of a network: one tensor, named arguments, or both kinds."""


def arguments(inputs: Inputs) -> Arguments:
    """The arguments of a call."""
    if isinstance(inputs, Arguments):
        return inputs
    return Arguments((), dict(inputs)) if isinstance(inputs, Mapping) else Arguments((inputs,), {})


def map_tensors(function: Callable[[Tensor], Any], inputs: Inputs) -> Any:
    """The inputs with each tensor mapped once: one that is passed twice, as query and key, stays one tensor."""
    mapped = dict[int, Any]()

    def once(tensor: Tensor) -> Any:
        if id(tensor) not in mapped:
            mapped[id(tensor)] = function(tensor)
        return mapped[id(tensor)]

    return tree_map_only(Tensor, once, dict(inputs) if isinstance(inputs, Mapping) else inputs)


def is_mask(tensor: Tensor) -> bool:
    """Whether an input is a mask: only 0, 1 and large negative numbers."""
    return not tensor.is_complex() and bool(((tensor == 0) | (tensor == 1) | (tensor < FARTHEST)).all())


def masks_among(inputs: Any) -> set[int]:
    """The ids of the masks among the tensors of a call; empty if all floating tensors look like masks.

    If all do, they are images of zeros and ones.
    """
    tensors = [each for each in tree_leaves(inputs) if isinstance(each, Tensor)]
    numbers = [each for each in tensors if each.is_floating_point() or each.is_complex()]
    masks = {id(each) for each in numbers if is_mask(each)}
    ids = any(each.dtype != torch.bool for each in tensors if not (each.is_floating_point() or each.is_complex()))
    return masks if ids or len(masks) < len(numbers) else set()


def is_variable(leaf: Any) -> bool:
    """Whether claims about formulas cover all numbers of an input; masks, ids and plain values are fixed."""
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and not is_mask(leaf)


@final
@dataclass(frozen=True, eq=False)
class Specimen:
    """The inputs of one call.

    Args:
        inputs: arguments of a call.
        described: description of the main tensor.
        place: index of the main tensor among the leaves of the inputs; claims are about it, and it has a batch.
    """

    inputs: Inputs
    described: str = ""
    place: int = 0

    @property
    def main(self) -> Tensor:
        """The tensor that claims are about."""
        leaves = tree_leaves(dict(self.inputs) if isinstance(self.inputs, Mapping) else self.inputs)
        main: Tensor = leaves[self.place]
        return main

    @property
    def called_with(self) -> str:
        """The further arguments as a clause of a claim; empty if there are none."""
        words = list(self.others())
        return f", called with {' and '.join(words)}" if words else ""

    def others(self) -> Iterator[str]:
        """The arguments that do not hold the main tensor, in words."""
        positional, named = arguments(self.inputs)
        every = [(f"argument {number}", each) for number, each in enumerate(positional, start=1)] + [*named.items()]
        for name, value in every:
            leaves = tree_leaves(value)
            if any(leaf is self.main for leaf in leaves):
                continue
            tensors = any(isinstance(leaf, Tensor) for leaf in leaves)
            yield name if tensors else f"{name}={value!r}"

    def several_images(self, count: int) -> "Specimen":
        """The inputs with a batch of two or three, which reveals a coupling between images of a batch.

        All images differ, since code may test whether two are equal; masks are repeated.
        """
        if isinstance(self.inputs, Tensor) and len(self.main) >= count:
            return replace(self, inputs=self.main[:count])
        if len(self.main) > 1 and not isinstance(self.inputs, Tensor):
            return self

        def several(tensor: Tensor) -> Tensor:
            if not tensor.ndim or (len(tensor) > 1 and tensor is not self.main):
                return tensor
            if tensor.ndim == 1 or (is_mask(tensor) and tensor is not self.main):
                return torch.cat([tensor[:1]] * count)
            one = tensor[:1]
            others = (
                (one.flip(-1) / 2, one.roll(1, -1) / 4) if one.is_floating_point() else (one.flip(-1), one.roll(1, -1))
            )
            return torch.cat([tensor, *others[: count - len(tensor)]])

        return replace(self, inputs=map_tensors(several, self.inputs))


def main_input(network: nn.Module) -> str:
    """The name of the main argument according to the library; empty if unknown."""
    name = getattr(network, "main_input_name", None)
    return name if isinstance(name, str) and getattr(network, "config", None) is not None else ""


def specimen_size(network: nn.Module) -> tuple[int, ...] | None:
    """The shape of one input without its batch, as stated by a network's file, plan or library; None if unknown."""
    return own_size(network)[0]


def own_size(network: nn.Module) -> tuple[tuple[int, ...] | None, str]:
    """The shape of one input without its batch, if known, and words on its source; see `published_size`."""
    if size := input_size_of(network):
        return size, published_size(network)
    config, name = getattr(network, "config", None), main_input(network)
    if name == IDS:
        dummy = example_of(network).get(IDS)
        return (tuple(dummy.shape[1:]) if isinstance(dummy, Tensor) else None), ""
    return (shape_of_sound(config) if name in (WAVES, SPECTRA) else None), ""


def example_of(network: nn.Module) -> dict[str, Any]:
    """The inputs with which a library builds a network; empty if it has none."""
    dummy = getattr(network, "dummy_inputs", None)
    return dict(dummy) if isinstance(dummy, Mapping) else {}


def shape_of_sound(config: Any) -> tuple[int, ...] | None:
    """The shape of a wave, or of a spectrum, from the configuration of a network of transformers; None if unknown."""
    bins, most, longest = (getattr(config, key, None) for key in ("num_mel_bins", "max_source_positions", "max_length"))
    kernels, strides = getattr(config, "conv_kernel", None), getattr(config, "conv_stride", None)
    if isinstance(kernels, Sequence) and isinstance(strides, Sequence):
        length = FRAMES
        for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
            length = (length - 1) * stride + kernel
        return (length,)
    if isinstance(bins, int) and isinstance(most, int):
        return bins, 2 * most  # the second convolution halves the frames
    if isinstance(bins, int) and isinstance(longest, int):
        return longest, bins
    return None


def specimen_of(network: nn.Module, size: Sequence[int], input_range: float, seed: int, like: Tensor) -> Specimen:
    """One seeded random input of this size: token ids if the network takes them, otherwise numbers in a range.

    Args:
        size: shape without batch.
        like: a tensor with the dtype and device of the numbers.
    """
    generator, name = torch.Generator().manual_seed(seed), main_input(network)
    sides = "x".join(map(str, size))
    if name == IDS:
        words = vocabulary(network)
        main = torch.randint(words, (1, *size), generator=generator, device="cpu").to(like.device)
        described = f"1 random sequence of {sides} ids below {words} (seed {seed})"
    else:
        noise = torch.rand(1, *size, generator=generator, device="cpu") * 2 - 1
        main = (noise * input_range).to(like)
        kind = {WAVES: "wave", SPECTRA: "spectrum"}.get(name, "image" if len(size) > 1 else "input")
        described = f"1 random {kind} {sides} within +-{input_range:g} (seed {seed})"
    return with_others(network, main, described)


def with_others(network: nn.Module, main: Tensor, described: str) -> Specimen:
    """An input with the other required arguments of the network, repeated over the batch."""
    name = main_input(network)
    accepted = signature(network.forward).parameters if name else {}
    if name not in accepted:
        return Specimen(main, described)
    others = {key: each for key, each in example_of(network).items() if key in accepted and key != name}
    others = {key: each for key, each in others.items() if isinstance(each, Tensor) and key != IDS}
    config: Any = getattr(network, "config", None)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in accepted:
        begin = getattr(config, "decoder_start_token_id", None) or 0
        others["decoder_input_ids"] = torch.tensor([[begin, *(range(1, DECODED))]]) % vocabulary(network)
    batch: dict[str, Any] = {
        key: each[:1].expand(len(main), *each.shape[1:]).to(main.device) for key, each in others.items()
    }
    if "use_cache" in accepted and getattr(config, "use_cache", False):
        batch["use_cache"] = False  # a cache serves later calls, and is not a tensor
    return Specimen({name: main, **batch} if batch else main, described)


def wanted_inputs(network: nn.Module) -> tuple[str, str]:
    """The kind of a network's inputs, and an example file or folder: ("waves", "waves.npy")."""
    if takes_ids(network):
        return "ids", "ids.npy"
    if (word := {WAVES: "waves", SPECTRA: "spectra"}.get(main_input(network))) is not None:
        return word, f"{word}.npy"
    pictures = any(isinstance(each, nn.Conv2d) for each in network.modules())
    return ("images", "images") if pictures else ("inputs", "inputs.npy")


def takes_ids(network: nn.Module) -> bool:
    """Whether a network may take token ids: its library says so, or is silent while the network embeds ids."""
    name = main_input(network)
    return name == IDS or (not name and any(isinstance(each, nn.Embedding) for each in network.modules()))


def vocabulary(network: nn.Module) -> int:
    """The number of ids in a network's vocabulary."""
    size = getattr(getattr(network, "config", None), "vocab_size", None)
    embeddings = (each.num_embeddings for each in network.modules() if isinstance(each, nn.Embedding))
    return size if isinstance(size, int) and size > 0 else next(embeddings, 2)
