"""The context of the compared layers of a network, as a graph of ATen operators that holds for all input sizes.

Two networks whose graphs are equal, node by node and constant by constant, compute the same from the same layers:
hooks, modes, buffers, replaced forwards and functional convolutions are nodes of the graph or no part of the map.
"""

import hashlib
import logging
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from io import StringIO
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental import _config as symbolic
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

from conv2attn.equivalence.conditions import conditions_of, own_line, reason_of
from conv2attn.equivalence.opaque import Calls, hidden
from conv2attn.report import counted


@final
@dataclass(frozen=True)
class Node:
    """One operator: `key` says what it computes of which earlier nodes and constants, `label` and `where` for people.

    `constants` are those that it reads, each with its name and its bits; `operator` is the key without these bits;
    `name` is what the exported program calls it.
    """

    key: str
    label: str
    where: str = ""
    constants: tuple[tuple[str, str], ...] = ()
    name: str = ""

    @property
    def operator(self) -> str:
        """The key without the bits of its constants."""
        return reduce(lambda key, constant: key.replace(constant[1], "<>"), self.constants, self.key)


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


def constants_of(program: ExportedProgram) -> tuple[dict[str, Any], dict[str, str]]:
    """The constants of a program by the names of their nodes, and the names that the network has for them."""
    signature = program.graph_signature
    held = {**program.state_dict, **program.constants}
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    return {node: held[name] for node, name in names.items() if name in held}, names


def functional(first: Graph, second: Graph) -> tuple[Graph, Graph]:
    """Both graphs with the nodes of the same code without updates in place, hence without copies.

    Where no tensor is changed a copy is what it copies. Graphs that have neither are left as they are.
    """
    targets = {str(node.target) for graph in (first, second) for node in graph.program.graph.nodes}
    if not any(target in COPIES or re.fullmatch(r"aten\.\w+_\.\w+", target) for target in targets):
        return first, second
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        programs = [graph.program.run_decompositions({}) for graph in (first, second)]
    ours, theirs = (tuple(nodes_of(program, skipped=COPIES)) for program in programs)
    return replace(first, nodes=ours), replace(second, nodes=theirs)


def nodes_of(program: ExportedProgram, skipped: Collection[str] = ()) -> Iterator[Node]:
    """The operators of a program by what they compute, constants by their bits; `skipped` ones are their arguments."""
    yield from walk(program.graph_module, *constants_of(program), {}, skipped)
    for result, name in program.graph_signature.buffers_to_mutate.items():
        yield Node(f"{result} is stored in {name}", f"an update of {name}")
    yield Node(f"returns {program.call_spec.out_spec}", "the structure of what is returned")


def walk(
    module: fx.GraphModule,
    constants: Mapping[str, Any],
    names: Mapping[str, str],
    bits: dict[int, str],
    skipped: Collection[str],
) -> Iterator[Node]:
    """The operators of a graph and of the graphs inside it."""
    place: dict[fx.Node, str] = {}
    inputs, count = 0, 0
    for node in module.graph.nodes:
        if node.op == "placeholder":
            constant = constants.get(node.name)
            if isinstance(constant, Tensor) and node.users:
                place[node] = f"<{bits_of(constant, bits)}>"
            elif node.name not in constants:
                place[node] = f"input {inputs} {kind_of(node)}"
                inputs += 1
            continue
        if node.op == "get_attr" and isinstance(getattr(module, str(node.target), None), fx.GraphModule):
            inner = list(walk(getattr(module, str(node.target)), {}, {}, bits, skipped))
            place[node] = f"graph of {len(inner)} nodes"
            yield from inner
            continue

        if node.op == "get_attr":
            raise NotImplementedError(f"{node.target} is no tensor that the export lifted out")

        if str(node.target) in skipped:
            place[node] = place[node.args[0]]
            continue
        read = [each for each in node.all_input_nodes if each.name in constants]
        target = str(node.target) if node.op != "output" else "output"
        arguments, keywords = (named(item, place) for item in (read_arguments(node), node.kwargs))
        key = f"{node.op} {target} {arguments!r} {sorted(keywords.items())!r}"
        known = tuple((names[each.name], place[each]) for each in read)
        yield Node(key, label_of(node), own_line(node.meta), known, node.name)
        place[node], count = f"%{count}", count + 1


def read_arguments(node: fx.Node) -> tuple[Any, ...]:
    """The arguments that an operator reads: in evaluation mode no momentum of batch_norm and no rate of dropout."""
    arguments = list(node.args)
    name = str(node.target)
    if name.endswith(".batch_norm.default") and arguments[5] is False:
        arguments[6] = "not read"
    if name == "aten.dropout.default" and arguments[2] is False:
        arguments[1] = "not read"
    return tuple(arguments)


def named(item: Any, place: Mapping[fx.Node, str]) -> Any:
    """Arguments in which each node is replaced by what it is called."""
    return tree_map(lambda each: place[each] if isinstance(each, fx.Node) else each, item)


def bits_of(tensor: Tensor, known: dict[int, str]) -> str:
    """Dtype, shape and SHA-256 of the numbers of a tensor; NaN and the sign of zero count."""
    key = id(tensor)
    if key not in known:
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            raise NotImplementedError(f"a constant is a sparse, quantised or nested tensor, {tensor.layout}")
        plain = tensor.detach().cpu().reshape(-1).clone(memory_format=torch.contiguous_format)
        numbers: Any = plain.view(torch.uint8).numpy() if plain.numel() else b""
        digest = hashlib.sha256(numbers).hexdigest()
        known[key] = f"{tensor.dtype} {tuple(tensor.shape)} {digest}"
    return known[key]


def kind_of(node: fx.Node) -> str:
    """Dtype and number of axes of an input."""
    value = node.meta.get("val")
    return f"{value.dtype} {value.ndim}" if isinstance(value, Tensor) else repr(value)


def module_of(node: fx.Node) -> str:
    """The name of the innermost module that an operator runs in; empty for the network itself."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((path for path, _ in reversed(list(stack.values())) if path), "")


def label_of(node: fx.Node) -> str:
    """An operator for people: its name and the module that it runs in."""
    inside, name = module_of(node), node.op
    if node.op == "call_function":
        name = str(node.target).removeprefix("aten.").removeprefix("conv2attn.").partition(".")[0]
    return f"{name} in {inside}" if inside else name


def first_pair(first: Graph, second: Graph) -> tuple[Node, Node] | None:
    """The first nodes at the same place of two graphs that differ."""
    pairs = zip(first.nodes, second.nodes, strict=False)
    return next(((ours, theirs) for ours, theirs in pairs if ours.key != theirs.key), None)


def first_difference(first: Graph, second: Graph) -> str:
    """The first node at which two graphs differ, with its module and its line; empty if they are equal."""
    if pair := first_pair(first, second):
        return describe(*pair)
    longer = max((first.nodes, second.nodes), key=len)
    if len(first.nodes) != len(second.nodes):
        node = longer[min(len(first.nodes), len(second.nodes))]
        return f"{node.label}{node.where} is only in the {'first' if longer is first.nodes else 'second'} network"
    if first.conditions != second.conditions:
        told = [", ".join(each.conditions) or "every size" for each in (first, second)]
        return f"the code of the second network is for {told[1]}, that of the first for {told[0]}"
    return ""


def describe(ours: Node, theirs: Node) -> str:
    """Two nodes that differ, in words."""
    label = f"in the second {theirs.label}"
    if ours.label != theirs.label:
        return f"{label}{theirs.where} stands in place of {ours.label}{ours.where}"
    pairs = zip(ours.constants, theirs.constants, strict=False)
    moved = [second[0] for first, second in pairs if first[1] != second[1]]
    if moved:
        return f"{label}{theirs.where} reads other numbers: {moved[0]} differs"
    return f"{label}{theirs.where} {'has other arguments' if theirs.name else 'differs'}"


def different_constants(first: Graph, second: Graph) -> str:
    """Where two graphs of the same operators read different numbers, the worst place named; empty if nowhere."""
    if len(first.nodes) != len(second.nodes) or first.conditions != second.conditions:
        return ""
    pairs = list(zip(first.nodes, second.nodes, strict=True))
    if any((ours.operator, len(ours.constants)) != (theirs.operator, len(theirs.constants)) for ours, theirs in pairs):
        return ""
    names = [
        (mine[0], other[0])
        for ours, theirs in pairs
        for mine, other in zip(ours.constants, theirs.constants, strict=True)
        if mine[1] != other[1]
    ]
    found = (worst_number(name, first.constant(mine), second.constant(name)) for mine, name in names)
    return next(filter(None, found), "")


def worst_number(name: str, ours: Tensor, theirs: Tensor) -> str:
    """Where two constants differ most, in words; empty where only the signs of zeros or the bits of NaN differ."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{name} is {theirs.dtype} {tuple(theirs.shape)}, not {ours.dtype} {tuple(ours.shape)}"
    wide = torch.complex128 if ours.is_complex() else torch.float64
    first, second = (each.detach().cpu().to(wide) for each in (ours, theirs))
    unequal = (first != second) & ~(first.isnan() & second.isnan())
    if not unequal.any():
        return ""
    away = (first - second).abs().nan_to_num(torch.inf).masked_fill(~unequal, -1.0)
    place = tuple(int(i) for i in torch.unravel_index(away.argmax(), away.shape))
    many = counted(int(unequal.sum()), "number")
    return f"{name} differs in {many}, the worst at {place}: {theirs[place].item()!r}, not {ours[place].item()!r}"
