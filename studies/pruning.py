"""Pruning of heads that attend to a thin stripe or to all pixels alike (Cordonnier et al. 2020, App. E)."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.lab.training.recipe_networks import head_parameters
from conv2attn.layers.attention import MultiHeadSelfAttention, set_engine
from conv2attn.layers.attention.plan import from_plan, to_plan
from conv2attn.networks import attention_layers
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan
from conv2attn.report import Document, Report, Table, counted, document

SMALLEST, CONDITION = 1e-5, 1e5
"""The paper's thresholds; the authors' released code has another for the condition number."""


@final
@dataclass(frozen=True, repr=False)
class Pruning(Report):
    """The heads removed from each layer, and what that saves.

    Args:
        removed: the heads of each layer, by their numbers before.
        left: how many heads each layer keeps.
        parameters, flops: before and after; of all products on one image, by the engine dense.
    """

    schema: ClassVar[str] = "conv2attn.pruning/2"
    removed: dict[str, tuple[int, ...]]
    left: dict[str, int]
    smallest: float
    condition: float
    parameters: tuple[int, int]
    flops: tuple[int, int]


@document.register
def _(pruning: Pruning, verbose: bool = False) -> Document:
    """The number of heads removed, with the rule, what that saves, and a row for each layer."""
    rule = f"largest eigenvalue below {pruning.smallest:g}, or condition number above {pruning.condition:g}"
    removed = counted(sum(map(len, pruning.removed.values())), "head")
    lines = [f"{removed} removed, by the rule for the precision matrix: {rule}"]
    for quantity, (before, after) in (("parameters", pruning.parameters), ("FLOPs", pruning.flops)):
        lines.append(f"{quantity}: {before:,} to {after:,}, {1 - after / before:.1%} less")
    rows = tuple(
        (name, pruning.left[name], ", ".join(map(str, heads)) or "none") for name, heads in pruning.removed.items()
    )
    return Document(tuple(lines), (Table(("layer", "heads left", "removed"), rows),))


def degenerate_heads(
    network: nn.Module, smallest: float = SMALLEST, condition: float = CONDITION
) -> dict[str, tuple[int, ...]]:
    """The heads of each layer that attend to a thin stripe or to all pixels alike.

    Args:
        smallest: of the largest eigenvalue of a precision matrix; a head below it is degenerate.
        condition: the largest ratio of its largest to its smallest eigenvalue; a head above it is degenerate.
    """
    heads = {}
    for key, precision in head_parameters(network).items():
        if key.endswith(":precision"):
            values = torch.linalg.eigvalsh(precision)
            low, high = values[:, 0], values[:, -1]
            bad = ~(high >= smallest) | ~(high <= condition * low)
            heads[key.removesuffix(":precision")] = tuple(bad.nonzero().flatten().tolist())
    return heads


def prune(network: nn.Module, heads: Mapping[str, Sequence[int]]) -> AttentionClassifier:
    """A copy of an attention classifier without some heads; everything else is bitwise equal.

    It equals the network with the values of the removed heads set to zero.

    Args:
        network: an `AttentionClassifier`.
        heads: of each layer by its name, the heads to remove; `degenerate_heads` finds those of the paper.
    Raises:
        UnsupportedError: a layer would keep no head (C2A006).
        UsageError: the network is another (C2A006), or has no such layer or head (C2A002).
    """
    plan = plan_of(network)
    removed = {name: set(each) for name, each in heads.items()}
    pruned = copy.deepcopy(network)
    assert isinstance(pruned, AttentionClassifier)
    heads_left = []
    for name, layer in attention_layers(pruned).items():
        removed_heads = removed.pop(name, set())
        if unknown := sorted(removed_heads - set(range(layer.heads))):
            raise UsageError("C2A002", f"{name} has no head {unknown[0]}", "Name heads that the layer has.")
        remaining_heads = [head for head in range(layer.heads) if head not in removed_heads]
        if not remaining_heads:
            raise UnsupportedError(
                "C2A006",
                f"{name}: all of its heads would be removed",
                "Choose other thresholds, or name the heads to remove.",
            )
        heads_left.append(len(remaining_heads))
        if removed_heads:
            pruned.get_submodule(name.rpartition(".")[0]).attention = without_heads(layer, remaining_heads)
    if removed:
        raise UsageError("C2A002", f"{min(removed)!r} is no layer of the network", "Name a layer of the network.")
    pruned.plan = replace(plan, heads=tuple(heads_left))
    return pruned


def plan_of(network: nn.Module) -> ClassifierPlan:
    """The plan of an attention classifier.

    Raises:
        UsageError: the network is another (C2A006).
    """
    plan = getattr(network, "plan", None)
    if not isinstance(network, AttentionClassifier) or not isinstance(plan, ClassifierPlan):
        reason = f"{type(network).__name__} is not an attention classifier, and no heads of other networks are pruned"
        raise UsageError("C2A006", reason, "Pass a network of conv2attn train.")
    return plan


def without_heads(layer: MultiHeadSelfAttention, heads: Sequence[int]) -> MultiHeadSelfAttention:
    """A copy of a layer with some of its heads."""
    plan = to_plan(layer)
    plan["positions"] = [len(heads), *plan["positions"][1:]]
    smaller, state, head_indices = from_plan(plan), layer.state_dict(), torch.tensor(heads)
    shapes = {name: tensor.shape for name, tensor in smaller.state_dict().items()}
    smaller.load_state_dict(
        {name: select_heads(state[name], shape, head_indices) for name, shape in shapes.items()}, assign=True
    )
    for name, parameter in smaller.named_parameters():
        parameter.requires_grad_(layer.get_parameter(name).requires_grad)
    return smaller.train(layer.training)


def select_heads(tensor: Tensor, shape: torch.Size, heads: Tensor) -> Tensor:
    """The part of a tensor for `heads`, whose axis is the one that is shorter in `shape`."""
    axis = next((axis for axis, (old, new) in enumerate(zip(tensor.shape, shape, strict=True)) if old != new), None)
    return tensor.clone() if axis is None else tensor.index_select(axis, heads.to(tensor.device))


def prune_degenerate(
    network: nn.Module, smallest: float = SMALLEST, condition: float = CONDITION
) -> tuple[AttentionClassifier, Pruning]:
    """A copy of an attention classifier without its degenerate heads, and what that saves.

    Raises:
        UnsupportedError: see `prune`.
    """
    removed = degenerate_heads(network, smallest, condition)
    pruned = prune(network, removed)
    heads_left = {name: layer.heads for name, layer in attention_layers(pruned).items()}
    parameters = (count_parameters(network), count_parameters(pruned))
    size = pruned.plan.input_size
    flops = (count_flops(network, size), count_flops(pruned, size))
    return pruned, Pruning(removed, heads_left, smallest, condition, parameters, flops)


def count_parameters(network: nn.Module) -> int:
    """Number of trained numbers."""
    return sum(parameter.numel() for parameter in network.parameters())


@torch.no_grad()
def count_flops(network: nn.Module, input_size: tuple[int, ...]) -> int:
    """Operations of the products that an image takes, a multiplication and an addition counted as two.

    Products of weights and products of attention count alike, as the engine dense does them; sums, exponentials and
    normalisations do not count.

    Source: torch.utils.flop_counter.
    """
    network = copy.deepcopy(network).eval().to("meta")  # the products are the same whatever the numbers are
    if attention_layers(network):
        set_engine(network, "dense")
    image = torch.zeros(1, *input_size, dtype=next(network.parameters()).dtype, device="meta")
    network(image)  # measures the device, by products that are not the network's
    with FlopCounterMode(display=False) as counter:
        network(image)
    return counter.get_total_flops()
