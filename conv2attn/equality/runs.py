"""Runs both networks by plain calls, and in parallel with the second a copy of the first with the second's layers.

Copies run, so the caller's networks stay unchanged. Code that compares objects by identity may notice; every
certificate has the premise that it does not.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor, nn

from conv2attn.arguments import tensors_in, without_batch
from conv2attn.equality.calls import MODES, Returned, call, copied, numbers_of
from conv2attn.equality.certificate.results import in_mode
from conv2attn.equality.layers.layer_pairs import Pairs
from conv2attn.equality.layers.rows import LayerPair
from conv2attn.equality.twins.differences import difference_in_words
from conv2attn.equality.twins.exchanged import Exchanged
from conv2attn.errors import UsageError
from conv2attn.layers.theorem import STOCK
from conv2attn.networks.copies import copy_network
from conv2attn.networks.specimens import Inputs

WHICH = ("first", "second")
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


def run_both(
    networks: tuple[nn.Module, nn.Module], read: Pairs, images: Inputs, described: str, modes: Sequence[str] = ()
) -> Runs:
    """Runs both networks without gradients, copies on a few images in other modes, and measures the layers.

    Args:
        read: the pairs of layers. If both networks are the same code, the copy that runs in parallel with the second
            represents both.
        modes: further modes of gradients in which both run.
    Raises:
        UsageError: the first does not run (C2A009) or takes one image without a batch (C2A007), or there is not enough
            memory (C2A202).
        UnsupportedError: a copy differs from the network (C2A106).
    """
    twins = not read.difference
    pairs = {name: [pair.unmeasured() for pair in each] for name, each in read.layers.items()}
    copies = copied(networks[0], "first"), copied(networks[1], "second")
    check_batch(networks[0], images)
    ours, theirs = (call(copy_network(network), images) for network in networks)
    if ours.failure:
        reason_why = ours.failure.partition(": ")[2]
        takes = "Pass images that the network takes: their size with --input-size, or --inputs."
        remedy = without_batch(images) or takes
        raise UsageError("C2A009", f"the first network does not run on {described}: {reason_why}", remedy)
    same = all(pair.same for each in pairs.values() for pair in each)
    if not same:  # measured in parallel, so that the next layer reads the first's numbers
        call(Exchanged(copy_network(networks[0]), copies[1], pairs, carrying=False), images)
    exchanged = Exchanged(copies[0], copies[1], pairs if same else {})
    carrying = call(exchanged, images)
    seen = difference_in_words(carrying, theirs)
    asked = tuple(mode for mode in MODES if mode in modes)
    few = images[:FEW] if isinstance(images, Tensor) else images
    tried, elsewhere = tuple[str, ...](), ""
    if twins and not seen and not theirs.failure:
        tried = asked
        changed = ((mode, difference_in_mode(mode, networks, (exchanged, copies[1]), few)) for mode in tried)
        seen = next((f"{in_mode(mode)}, {found}" for mode, found in changed if found), "")
    if (seen or not twins) and not theirs.failure:
        tried, elsewhere = asked, changes_with_modes(networks, few, asked)
    return Runs(pairs, numbers_of(ours).output, numbers_of(theirs), seen, elsewhere, ("no gradients", *tried))


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


def difference_in_mode(
    mode: str, networks: tuple[nn.Module, nn.Module], called: tuple["Exchanged", nn.Module], images: Inputs
) -> str:
    """The difference visible to code in a mode of gradients; new copies run if those called before differ."""
    if not difference_in_words(call(called[0], images, mode=mode), call(called[1], images, mode=mode)):
        return ""
    second = copy_network(networks[1])
    first = Exchanged(copy_network(networks[0]), second, {})
    return difference_in_words(call(first, images, mode=mode), call(second, images, mode=mode))


def changes_with_modes(networks: Sequence[nn.Module], images: Inputs, modes: Sequence[str]) -> str:
    """How a network's numbers differ between one of the modes and no gradients, in words."""
    for which, network in zip(WHICH, networks, strict=True) if modes else ():
        plain = numbers_of(call(copy_network(network), images))
        for mode in modes:
            there = numbers_of(call(copy_network(network), images, mode=mode))
            if found := difference_in_words(plain, there, ("without gradients it", f"the {which} network")):
                return f"{in_mode(mode)}, the {which} returns something else than without: {found}"
    return ""
