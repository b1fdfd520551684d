"""The context: everything between the compared layers, compared as two graphs, and run where the graphs differ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Weights
from conv2attn.equivalence.bases import Pair, comparable_basis
from conv2attn.equivalence.exchanged import IMAGES, Modules, departure
from conv2attn.equivalence.finding import Finding, holds, refuted, undecided, unsupported
from conv2attn.equivalence.graph import Graph, Unexported, functional, graphs_of
from conv2attn.equivalence.graph_differences import different_constants, first_difference, first_pair
from conv2attn.equivalence.layer import strength_of
from conv2attn.equivalence.layers import compare_maps
from conv2attn.equivalence.leak import check_leaks
from conv2attn.equivalence.node_values import both_values
from conv2attn.equivalence.opaque import Calls, form_arguments
from conv2attn.equivalence.stored import StoredContext
from conv2attn.errors import Conv2AttnError
from conv2attn.models.conversion.discovery import copy_network
from conv2attn.theorem import Convolution
from conv2attn.verdicts import Strength, Verdict, weakest_strength


@final
@dataclass(frozen=True, eq=False)
class Context:
    """The finding on the context, and both graphs where they exist.

    `numbers` are those of the layers in the graphs, by name. `calls` is the strength with which attention in place of
    functional convolutions is known to compute them with any weights: proved or bounded where the graphs are equal and
    all heads are right, else sampled.
    """

    finding: Finding
    graphs: tuple[Graph, Graph] | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    calls: Strength = Strength.SAMPLED

    @property
    def evidence(self) -> StoredContext:
        """The hashes of both graphs, and the sizes that they hold for."""
        digests = (self.graphs[0].digest, self.graphs[1].digest) if self.graphs else ("", "")
        return StoredContext(digests, self.conditions)

    @property
    def conditions(self) -> tuple[str, ...]:
        """For which sizes of input the context is known to be the same; none where that is every size."""
        return self.graphs[0].conditions if self.graphs else ()


def compare_context(
    original: nn.Module,
    network: nn.Module,
    pairs: Modules,
    bases: Mapping[str, Pair],
    images: Tensor,
    *,
    refutes: bool = True,
) -> Context:
    """Whether the same happens between the layers of both, for every input of the sizes that the graphs hold for.

    Equal graphs prove it. Where they differ, or where one network has none, both are run with the layers of the first
    in both: other bits refute it, and equal bits leave it undecided.

    Args:
        pairs, bases: the compared layers by name, as modules and as values.
        refutes: whether other constants or bits refute; if not, different graphs are undecided.
    """
    if set(pairs) - set(bases):
        missing = sorted(set(pairs) - set(bases))[0] or "the layer"
        return Context(undecided("structure", "C2A405", f"{missing} cannot be read, so the context is not compared"))
    calls, layers = Calls(), opaque_layers(pairs, bases)
    numbers = {name: number for name, (number, _) in layers.items()}
    graphs: tuple[Graph, Graph] | None = None
    try:
        graphs = first, second = graphs_of(original, network, layers, images, calls)
    except Unexported as error:
        sentence = str(error)
    else:
        sentence = first_difference(first, second)
        if sentence and not first_difference(*(plain := functional(first, second))):
            graphs, sentence = plain, ""
        if not sentence:
            return Context(holds("structure"), graphs, numbers, strength_of_calls(calls))
        moved = different_constants(first, second) if refutes else ""
        if moved:
            return Context(refuted("structure", "C2A405", moved), graphs, numbers)
        sentence += numbers_in_words((first, second), original, numbers, calls, images)
    shown = departure(original, network, pairs, images) if refutes else ""
    told = f"{sentence}; with the layers of the first in both, {shown}" if shown else sentence
    finding = refuted("structure", "C2A405", told) if shown else undecided("structure", "C2A405", told)
    return Context(finding, graphs, numbers)


def numbers_in_words(
    graphs: tuple[Graph, Graph], original: nn.Module, numbers: Mapping[str, int], calls: Calls, images: Tensor
) -> str:
    """The numbers of both graphs at the first node that differs; empty if there is no such node."""
    nodes = first_pair(*graphs)
    if nodes is None:
        return ""
    copied = copy_network(original)
    layers = {number: copied.get_submodule(name) for name, number in numbers.items()}
    return both_values(graphs, (nodes[0].name, nodes[1].name), layers, calls, images[:IMAGES])


def opaque_layers(pairs: Modules, bases: Mapping[str, Pair]) -> dict[str, tuple[int, tuple[Any, ...]]]:
    """For each name of a layer its number and its form; layers that are one module on either side share a number."""
    numbers: dict[int, int] = {}
    found: dict[str, tuple[int, tuple[Any, ...]]] = {}
    for number, (name, both) in enumerate(pairs.items()):
        known = [numbers[id(layer)] for layer in both if id(layer) in numbers]
        mine = min([number, *known])
        numbers |= {layer: mine for layer, other in numbers.items() if other in known}
        numbers |= {id(layer): mine for layer in both}
        original = bases[name].original
        found[name] = mine, form_arguments(original.form, original.weights.d_out)
    return {name: (numbers[id(pairs[name][0])], form) for name, (_, form) in found.items()}


def strength_of_calls(calls: Calls) -> Strength:
    """How it is known that each attention used for a functional convolution computes it, whatever the weights are."""
    found = [
        strength_for_all_weights(calls.convolutions[index], attending.layer_for)
        for index, users in calls.used.items()
        for attending in users
    ]
    return weakest_strength([Strength.PROVED, *found])


def strength_for_all_weights(convolution: Convolution, layer_for: Callable[[Convolution], nn.Module]) -> Strength:
    """Proved or bounded where head h reads what tap h reads, for every h, and no head leaks; else sampled."""
    weight = convolution.weight
    taps = torch.arange(1, 1 + weight.shape[2:].numel(), dtype=torch.float64).reshape(weight.shape[2:])
    known = torch.ones(weight.shape, dtype=torch.float64).mul(taps).to(weight.dtype)
    plain = Convolution(known, None, convolution.stride, convolution.dilation, convolution.padding, convolution.groups)
    layer = layer_for(plain)
    assert isinstance(layer, MultiHeadSelfAttention)
    try:
        first = comparable_basis(plain)
        second = comparable_basis(layer, Weights(None, plain.taps(), None, plain.groups))
    except Conv2AttnError:
        return Strength.SAMPLED
    findings = (*compare_maps(first, second), check_leaks(first, second)[0])
    right = first.starts == second.starts and all(each.verdict is Verdict.HOLDS for each in findings)
    return strength_of(findings) if right else Strength.SAMPLED


def compiled(original: nn.Module, network: nn.Module) -> list[Finding]:
    """A finding on the first module that runs as compiled code, which cannot be read, if there is one."""
    for side, which in ((original, "first"), (network, "second")):
        for name, module in side.named_modules():
            dynamo = type(module).__module__ == "torch._dynamo.eval_frame"
            wrapped = dynamo or isinstance(module, torch.jit.ScriptModule)
            if wrapped or vars(module).get("_compiled_call_impl") is not None:
                sentence = f"{name or 'the network'} of the {which} runs as compiled code, which cannot be read"
                return [unsupported("C2A106", f"{sentence}: pass it uncompiled")]
    return []
