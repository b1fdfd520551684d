"""Runs both networks by plain calls, and in parallel with the second a copy of the first with the second's layers.

Copies run, so the caller's networks stay unchanged. Code that compares objects by identity may notice; every
certificate has the premise that it does not.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor, nn

from conv2attn.arguments import tensors_in, without_batch
from conv2attn.equality.asked import Asked
from conv2attn.equality.calls import MODES, Returned, call, copied, numbers_of
from conv2attn.equality.certificate.results import in_mode
from conv2attn.equality.layers.layer_pairs import Pairs
from conv2attn.equality.layers.rows import LayerPair
from conv2attn.equality.twins.exchanged import Exchanged
from conv2attn.equality.twins.lockstep import Lockstep
from conv2attn.errors import UsageError
from conv2attn.layers.theorem import STOCK
from conv2attn.networks.copies import copy_network
from conv2attn.networks.specimens import Inputs, Specimen

WHICH = ("first", "second")
BESIDE = ("the first network with its layers", "the second network")
FEW = 2  # images for other modes of gradients: batch normalisation in training mode needs two


@final
@dataclass(frozen=True)
class Runs:
    """The outputs of both networks, and how the second differs from the first with the second's layers in it.

    Args:
        pairs: the pairs of layers, as measured.
        first, second: their outputs; layers were measured while a copy of the first ran.
        seen: the difference that code between the layers notices with the second's layers, in words; empty if none.
        elsewhere: how one network's numbers differ in another mode of gradients, in words.
        gradients: the modes of gradients in which both ran.
    """

    pairs: dict[str, list[LayerPair]]
    first: Any
    second: Returned
    seen: str = ""
    elsewhere: str = ""
    gradients: tuple[str, ...] = ("no gradients",)


def run_both(asked: Asked, specimen: Specimen, read: Pairs) -> Runs:
    """Runs both networks without gradients, copies on a few images in other modes, and measures the layers.

    Args:
        read: the pairs of layers of the networks, and the difference of their code.
    Raises:
        UsageError: the first does not run (C2A009) or takes one image without a batch (C2A007), or there is not enough
            memory (C2A202).
        UnsupportedError: a copy differs from the network (C2A106).
    """
    networks, inputs = asked.networks, specimen.inputs
    pairs = {name: [pair.unmeasured() for pair in each] for name, each in read.layers.items()}
    copies = copied(networks[0], "first"), copied(networks[1], "second")
    check_batch(networks[0], inputs)
    ours, theirs = (call(copy_network(network), inputs) for network in networks)
    if ours.failure:
        reason_why = ours.failure.partition(": ")[2]
        takes = "Pass images that the network takes: their size with --input-size, or --inputs."
        remedy = without_batch(inputs) or takes
        raise UsageError("C2A009", f"the first network does not run on {specimen.described}: {reason_why}", remedy)
    same = all(pair.same for each in pairs.values() for pair in each)
    if not same:  # measured in parallel, so that the next layer reads the first's numbers
        call(Exchanged(copy_network(networks[0]), copies[1], pairs, carrying=False), inputs)
    seen = difference_in_words(call(Exchanged(*copies, pairs if same else {}), inputs), theirs)
    tried, elsewhere = tuple[str, ...](), ""
    if not theirs.failure:
        tried = tuple(mode for mode in MODES if mode in asked.modes)
        few = inputs[:FEW] if isinstance(inputs, Tensor) else inputs
        if not (read.difference or seen):
            seen = first_mode(tried, lambda mode: difference_beside(mode, networks, few))
        if read.difference or seen:
            elsewhere = first_mode(tried, lambda mode: change_with_mode(mode, networks, few))
    return Runs(pairs, numbers_of(ours).output, numbers_of(theirs), seen, elsewhere, ("no gradients", *tried))


def difference_in_words(first: Returned, second: Returned, names: tuple[str, str] = BESIDE) -> str:
    """The first difference that code can see between two outputs, or the inputs after the call; empty if none."""
    if first.failure or second.failure:
        if first.failure == second.failure:
            return ""
        ours, theirs = (f"raises {each.failure}" if each.failure else "runs" for each in (first, second))
        return f"{names[1]} {theirs}, and {names[0]} {ours}"
    results = ({"output": each.output, "input": each.image} for each in (first, second))
    return Lockstep(*results).difference


def first_mode(modes: Sequence[str], difference: Callable[[str], str]) -> str:
    """The first difference in one of the modes of gradients, in words; empty if none."""
    return next((f"{in_mode(mode)}, {change}" for mode in modes if (change := difference(mode))), "")


def difference_beside(mode: str, networks: tuple[nn.Module, nn.Module], images: Inputs) -> str:
    """The difference that code sees in a mode of gradients, in words; new copies run, as a call may change a copy."""
    first, second = map(copy_network, networks)
    return difference_in_words(call(Exchanged(first, second, {}), images, mode=mode), call(second, images, mode=mode))


def change_with_mode(mode: str, networks: tuple[nn.Module, nn.Module], images: Inputs) -> str:
    """How one of the networks returns other numbers in a mode than without gradients, in words."""
    for which, network in zip(WHICH, networks, strict=True):
        plain, there = (numbers_of(call(copy_network(network), images, mode=each)) for each in ("no gradients", mode))
        if change := difference_in_words(plain, there, ("without gradients it", f"the {which} network")):
            return f"the {which} returns something else than without: {change}"
    return ""


def check_batch(network: nn.Module, inputs: Inputs) -> None:
    """Refuses a single image without a batch, which torch's convolutions accept: its channels would count as images.

    Args:
        network: a network with a faithful copy; another copy runs here.

    Raises:
        UsageError: the image fits the first convolution without a batch (C2A007).
    """
    images = tensors_in(inputs)[0]
    first = next((each for each in network.modules() if isinstance(each, STOCK)), None)
    if first is None or images.ndim != len(first.kernel_size) + 1 or not len(images) == first.in_channels > 1:
        return
    network = copy_network(network)
    first = next(each for each in network.modules() if isinstance(each, STOCK))
    axes = list[int]()
    hook = first.register_forward_pre_hook(lambda _, arguments: axes.append(arguments[0].ndim))
    with hook, suppress(Exception):  # an error of the network is reported by its later run
        call(network, inputs)
    if images.ndim in axes[:1]:
        sides = "x".join(map(str, images.shape))
        raise UsageError("C2A007", f"images of {sides} are one image without a batch", "Pass images[None].")
