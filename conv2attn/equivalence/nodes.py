"""The operators of an exported program by what they compute: comparable values, constants by their bits."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, final

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.utils._pytree import tree_map

from conv2attn.equivalence.conditions import own_line


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
