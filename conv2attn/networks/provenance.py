"""The file that a network was loaded from, and the assumptions made to load it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from torch import nn

from conv2attn.layers.attention import MultiHeadSelfAttention

PIXELS = "pixel_values"  # what transformers calls images


@final
@dataclass(frozen=True)
class Provenance:
    """The source of a loaded network. A state dict does not name its network, so part of it is assumed.

    Args:
        path: the file or folder.
        kind: kind of file, such as "state dict (torch.save)".
        architecture: how the network was built, as `--arch` takes it, or the name of a plan of this project.
        assumed: one sentence per assumption; empty if the file states everything.
        sha256: the hash of the file, or of the hashes of a folder's weight files.
        arguments: the arguments of the architecture (`--arch-args`).
        config: for transformers, the configuration that rebuilds the network.
        input_size: channels and sides of the images of the published architecture, if known.
        mean, std: the normalisation of its images, one number per channel, if known.
        crop: the share of the sides of a resized image kept by the centre crop, if known.
    """

    path: str
    kind: str
    architecture: str
    assumed: tuple[str, ...] = ()
    sha256: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] | None = None
    input_size: tuple[int, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop: float | None = None

    def to_text(self) -> str:
        """One line: the architecture, and each assumption."""
        return f"read as {self.architecture} ({'; '.join(self.assumed) or 'nothing assumed'})"


def provenance_of(network: nn.Module) -> Provenance | None:
    """The source of `network`, or of the network that it was converted from; None if it was built in Python."""
    provenance = vars(network).get("_conv2attn_provenance")
    return provenance if isinstance(provenance, Provenance) else None


def assumed_of(network: nn.Module | None) -> str:
    """Assumptions about the file that a network was read from, in words; empty if there are none."""
    provenance = provenance_of(network) if network is not None else None
    return provenance.to_text() if provenance is not None and provenance.assumed else ""


def input_size_of(network: nn.Module) -> tuple[int, ...] | None:
    """Channels and sides of a network's images, as stated by its file, plan, a part or its library; None if unknown.

    Parts or their configurations state `img_size` or `image_size`; timm's weights are for the size of `pretrained_cfg`.
    """
    provenance, plan = provenance_of(network), getattr(network, "plan", None)
    published = getattr(network, "pretrained_cfg", None)
    channels = channels_of(network)
    said = [(provenance and provenance.input_size) or getattr(plan, "input_size", None)]
    if channels and getattr(network, "main_input_name", PIXELS) == PIXELS:
        holders = [each for module in network.modules() for each in (module, getattr(module, "config", None))]
        sides = (getattr(holder, name, None) for holder in holders for name in ("image_size", "img_size"))
        pairs = ((side, side) if isinstance(side, int) else side for side in sides)
        said += [(channels, *pair) for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2]
    said += [published.get("input_size") if isinstance(published, Mapping) else None]
    return next((tuple(size) for size in said if size), None)


def channels_of(network: nn.Module) -> int | None:
    """The channels that the first convolution of images, or the first attention of this project, reads."""
    for each in network.modules():
        if isinstance(each, nn.Conv2d | MultiHeadSelfAttention):
            return each.d_in if isinstance(each, MultiHeadSelfAttention) else each.in_channels
    return None


def published_size(network: nn.Module) -> str:
    """The source of the size of images as a clause, `, the size of timm:resnet18`; empty if no file states the size."""
    source = provenance_of(network)
    return f", the size of {source.architecture}" if source and source.input_size else ""


def with_provenance(network: nn.Module, provenance: Provenance) -> nn.Module:
    """Stores the provenance in an attribute of `network`, and returns the network."""
    vars(network)["_conv2attn_provenance"] = provenance
    return network
