"""The context of the compared layers of a network, as a graph of ATen operators that holds for all input sizes.

Two networks whose graphs are equal, node by node and constant by constant, compute the same from the same layers:
hooks, modes, buffers, replaced forwards and functional convolutions are nodes of the graph or no part of the map.
"""

import hashlib
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental import _config as symbolic
from torch.nn.parameter import is_lazy

from conv2attn.equivalence.conditions import conditions_of, reason_of
from conv2attn.equivalence.nodes import Node, constants_of, nodes_of
from conv2attn.equivalence.opaque import Calls, hidden


@final
@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes of a network in the order in which they run, and for which sizes of input they are what runs.

    `conditions` are those that the code asked of the sizes; where there are none, the graph is that of every size.
    """

    program: ExportedProgram
    nodes: tuple[Node, ...]
    conditions: tuple[str, ...]

    def constant(self, name: str) -> Tensor:
        """A constant by its name."""
        held = {**self.program.state_dict, **self.program.constants}
        found: Tensor = held[name]
        return found

    @property
    def constants(self) -> dict[str, Any]:
        """The parameters, buffers and constants by the names of the nodes that stand for them."""
        return constants_of(self.program)[0]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all keys and conditions."""
        return hashlib.sha256("\n".join([*(node.key for node in self.nodes), *self.conditions]).encode()).hexdigest()


class Unexported(Exception):
    """A network has no such graph; the reason, with the line of its code."""


COPIES = ("aten.clone.default", "aten.detach.default", "aten.alias.default", "aten.contiguous.default")
Layers = Mapping[str, tuple[int, Sequence[Any]]]


def graphs_of(
    original: nn.Module, network: nn.Module, layers: Layers, images: Tensor, calls: Calls
) -> tuple[Graph, Graph]:
    """The graphs of two networks for all sizes of input, or both for the size of `images` where one has no other.

    Raises:
        Unexported: one of the two has no graph.
    """

    def both(*, every_size: bool) -> tuple[Graph, Graph]:
        found = list[Graph]()
        for side, which in ((original, "first"), (network, "second")):
            try:
                found.append(graph_of(side, layers, images, calls, every_size=every_size))
            except Unexported as error:
                raise Unexported(f"the {which} cannot be exported as a graph: {error}") from error
        return found[0], found[1]

    try:
        return both(every_size=True)
    except Unexported as error:
        try:
            return both(every_size=False)
        except Unexported:
            raise error from None


def graph_of(network: nn.Module, layers: Layers, images: Tensor, calls: Calls, *, every_size: bool = True) -> Graph:
    """The graph of `network` with its compared `layers` opaque.

    Args:
        layers: for each name of a compared layer, its number and its form.
        images: (batch, channels, *sides), of which only shape and dtype count; the number of axes and channels stay.
        every_size: whether batch and sides are unknown, so that the graph holds for all of them.
    Raises:
        Unexported: there is none.
    """
    for name, held in [*network.named_parameters(), *network.named_buffers()]:
        if is_lazy(held):
            raise Unexported(f"{name} has no numbers yet: the layer is lazy and has not seen an input")
    dynamic = {axis: Dim.AUTO for axis in range(images.ndim) if axis != 1} if every_size else {}
    try:
        with hidden(network, layers, calls):
            program = exported(network, images, dynamic)
        return Graph(program, tuple(nodes_of(program)), conditions_of(program, images, dynamic))
    except Exception as error:  # the network's own code may raise anything, and so may the export
        raise Unexported(reason_of(error)) from error


def exported(network: nn.Module, images: Tensor, dynamic: Mapping[int, Any]) -> ExportedProgram:
    """The program of `network`; code between the operators runs as it is, sizes of 0 and 1 are not special.

    What torch logs and prints of an export that fails is left out: the error names the line.
    """
    with (
        warnings.catch_warnings(action="ignore"),
        unlogged("torch.fx.experimental.symbolic_shapes"),
        redirect_stderr(StringIO()),
        symbolic.patch(backed_size_oblivious=True),  # type: ignore[attr-defined]
        torch.random.fork_rng(),
        torch.no_grad(),
    ):
        return torch.export.export(network, (images,), dynamic_shapes=(dict(dynamic),), strict=False)


@contextmanager
def unlogged(name: str) -> Iterator[None]:
    """Nothing is logged under this name."""
    logger = logging.getLogger(name)
    logger.disabled, known = True, logger.disabled
    try:
        yield
    finally:
        logger.disabled = known


def functional(first: Graph, second: Graph) -> tuple[Graph, Graph]:
    """Both graphs with the nodes of the same code without updates in place, hence without copies.

    Where no tensor is changed a copy is what it copies. Graphs that have neither are left as they are, and so are those
    that torch cannot rewrite.
    """
    targets = {str(node.target) for graph in (first, second) for node in graph.program.graph.nodes}
    if not any(target in COPIES or re.fullmatch(r"aten\.\w+_\.\w+", target) for target in targets):
        return first, second
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            programs = [graph.program.run_decompositions({}) for graph in (first, second)]
        ours, theirs = (tuple(nodes_of(program, skipped=COPIES)) for program in programs)
    except Exception:  # operators of the network's own may raise anything here
        return first, second
    return replace(first, nodes=ours), replace(second, nodes=theirs)
