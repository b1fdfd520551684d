"""From a file to the network that it holds, recognised by its contents alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol, final

import torch
from torch import nn

from conv2attn.checkpoints import saving
from conv2attn.checkpoints.reading import read, tensors_in
from conv2attn.errors import CheckpointError
from conv2attn.models.zoo import resnet

Content = Mapping[Any, Any]


class Plan(Protocol):
    """What is known of a network without its weights: at least what it is called."""

    @property
    def name(self) -> str: ...


@final
@dataclass(frozen=True)
class Kind:
    """A kind of content: what it is, the plan of content that is of this kind (else None), and the network of both."""

    description: str
    recognise: Callable[[Content], Plan | None]
    build: Callable[[Any, Content], nn.Module]


def _recognise_resnet(content: Content) -> resnet.ResNetPlan | None:
    return resnet.recognise(tensors_in(content) or {})


def _build_resnet(plan: resnet.ResNetPlan, content: Content) -> nn.Module:
    """The plan's network with the file's own tensors: same bits, same dtype, no memory shared with another."""
    state = tensors_in(content) or {}
    for key, tensor in state.items():
        if not tensor.is_floating_point() and not key.endswith(".num_batches_tracked"):
            raise CheckpointError("C2A303", f"{key!r} is {tensor.dtype}; weights are floating-point numbers")
    with torch.device("meta"):
        network = resnet.build(plan)
    network.load_state_dict({key: tensor.clone() for key, tensor in state.items()}, strict=True, assign=True)
    return network


KINDS = (
    Kind("a network that conv2attn saved", saving.recognise, saving.rebuild),
    Kind(
        "a ResNet's state dict with torchvision's keys (basic or bottleneck blocks)", _recognise_resnet, _build_resnet
    ),
)


def load(path: str | PathLike[str], arch: str | None = None) -> nn.Module:
    """The network in a file, in evaluation mode, its weights as stored.

    Args:
        path: a state dict written by `torch.save`; see `reading.read` for what is refused.
        arch: what the network must be called, such as "resnet18"; whatever is recognised when absent.
    Raises:
        CheckpointError: C2A304 where the contents are of no kind known here, or not `arch`; those of `reading.read`.
    """
    content = read(path)
    for kind in KINDS:
        plan = kind.recognise(content)
        if plan is not None:
            if arch not in (None, plan.name):
                raise CheckpointError("C2A304", f"{path} holds {plan.name}, not {arch}", f"Pass --arch {plan.name}.")
            network = kind.build(plan, content).eval()
            if isinstance(plan, resnet.ResNetPlan):
                vars(network)["_conv2attn_read_as"] = plan.read_as
            return network
    keys = ", ".join(repr(key)[:60] for key in list(tensors_in(content) or content)[:5]) or "none"
    known = "; ".join(kind.description for kind in KINDS)
    raise CheckpointError("C2A304", f"{path} begins with the keys {keys}; known is: {known}")
