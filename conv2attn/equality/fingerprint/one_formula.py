"""Compares the formulas of two networks on any device: rules exist for CPU operators, so copies run on the CPU."""

from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor, nn

from conv2attn.equality.fingerprint import Identification, identify
from conv2attn.equality.fingerprint.field import Progress
from conv2attn.equality.twins.exchanged import with_layers_of_the_first
from conv2attn.networks.copies import copy_network, move_network


def one_formula(
    networks: tuple[nn.Module, nn.Module], images: Tensor, same: Collection[str] = (), progress: Progress | None = None
) -> Identification:
    """Whether both networks are one formula of images of this size.

    Networks on another device run as copies on the CPU, and the mode of the result says so.

    Args:
        images: images, on the device of the networks.
        same: the names of layers that are the same maps; the second network then uses the first's.
        progress: see `identify`.
    """
    here, cpu = images.device.type == "cpu", torch.device("cpu")
    first, second = networks if here else (move_network(copy_network(network), cpu) for network in networks)
    if same:
        first, second = with_layers_of_the_first((first, second), same)
    identification = identify(first, second, images.cpu(), progress=progress)
    return identification if here else replace(identification, mode=f"{identification.mode}, run on the CPU")
