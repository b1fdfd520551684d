"""Rewrites calls of networks as calls with one tensor of numbers: fixed inputs stay, the others are its parts.

An example: a decoder called with 5 rows, 7 rows and a mask becomes a network of 12 rows of numbers; the mask is fixed.
BERT on the ids (5, 17, 42) becomes a network of 3 rows of numbers, those of its first embedding. Its positions, masks
and other functions of the ids stay fixed, and the formula is one in the embeddings of the tokens at these places.
"""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.networks.copies import copy_network, in_training
from conv2attn.networks.specimens import Inputs, Specimen, arguments, is_variable
from conv2attn.torch_internals import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

DESCRIBED = (
    ", where the inputs are the embeddings of ids at these places, and all else that is computed from ids is as in "
    "this call"
)
AsNumbers = tuple[tuple[nn.Module, nn.Module], Tensor, tuple[tuple[int, ...], ...]]


@final
class Embedded(nn.Module):
    """A network called with fixed inputs, whose first embedding returns given rows.

    Args:
        network: a copy, which is changed.
        name: name of the embedding.
    """

    def __init__(self, network: nn.Module, name: str, inputs: Inputs):
        super().__init__()
        self.rows, self.arguments = list[Tensor](), arguments(inputs)
        network.get_submodule(name).register_forward_hook(self.put_in)
        self.network, self.training = network, in_training(network)

    def put_in(self, *_: Any) -> Tensor:
        """The given rows, once per call of the network, instead of those that the embedding returns."""
        return self.rows.pop()

    def forward(self, rows: Tensor) -> Any:
        """The output of the network for these rows."""
        self.rows.append(rows)
        try:
            return self.network(*self.arguments.positional, **self.arguments.named)
        finally:
            self.rows.clear()


def embedding_of_ids(network: nn.Module, inputs: Inputs, ids: Tensor) -> str:
    """The name of the only embedding that reads the ids, once per call; empty if there is no single one."""
    copy, calls = copy_network(network), list[tuple[str, bool]]()

    def record(name: str) -> Any:
        def hook(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
            same = bool(arguments) and arguments[0].numel() == ids.numel()
            calls.append((name, same and torch.equal(arguments[0].flatten(), ids.flatten())))

        return hook

    for name, module in copy.named_modules():
        # With max_norm a call rewrites rows of the weight, so the given rows would not be those it returns.
        if type(module) is nn.Embedding and module.max_norm is None and name:
            module.register_forward_hook(record(name))
    positional, named = arguments(inputs)
    with torch.no_grad():
        copy(*positional, **named)
    # Rows are replaced once per call, so an embedding that is read twice would have none the second time.
    reading = [name for name, same in calls if same]
    return reading[0] if reading and [name for name, _ in calls].count(reading[0]) == 1 else ""


def of_embeddings(networks: tuple[nn.Module, nn.Module], specimen: Specimen) -> AsNumbers | str:
    """Both networks as functions of rows of numbers, the rows for these ids, and their size; or the reason why not."""
    embedded, tables = list[nn.Module](), list[Tensor]()
    for which, network in zip(("first", "second"), networks, strict=True):
        name = embedding_of_ids(network, specimen.inputs, specimen.main)
        if not name:
            return f"the {which} network has no single embedding that reads the ids"
        embedding = network.get_submodule(name)
        assert isinstance(embedding, nn.Embedding)
        tables.append(embedding.weight.detach())
        embedded.append(Embedded(copy_network(network), name, specimen.inputs))
    # A formula of embeddings says nothing of the tables, so these are compared too, with the rows of ids that this call
    # lacks. One table may be longer: ids beyond the other's end are not inputs of both.
    rows = min(map(len, tables))
    if tables[0].shape[1] != tables[1].shape[1] or not torch.equal(*(table[:rows] for table in tables)):
        return "the embeddings of ids are not the same numbers in both"
    return (embedded[0], embedded[1]), tables[0][specimen.main], (tuple(specimen.main.shape),)


@final
class OfNumbers(nn.Module):
    """A network called with fixed inputs, whose variables are the parts of one row of numbers."""

    def __init__(self, network: nn.Module, inputs: Inputs, variables: Sequence[Tensor]):
        super().__init__()
        self.network, self.training, self.arguments = network, in_training(network), arguments(inputs)
        # By index and not by identity: a copy of this module has other tensors.
        leaves = tree_leaves(self.arguments)
        self.parts = [next((n for n, each in enumerate(variables) if each is leaf), None) for leaf in leaves]
        self.shapes = [each.shape for each in variables]

    def forward(self, numbers: Tensor) -> Any:
        """The output of the network for these numbers."""
        rows = numbers.split([shape.numel() for shape in self.shapes])
        variables = [row.view(shape) for row, shape in zip(rows, self.shapes, strict=True)]
        # Fixed inputs are cloned, since the network may write into them.
        leaves, form = tree_flatten(tree_map_only(Tensor, Tensor.clone, self.arguments))
        leaves = [each if part is None else variables[part] for each, part in zip(leaves, self.parts, strict=True)]
        positional, named = tree_unflatten(leaves, form)
        return self.network(*positional, **named)


def of_numbers(networks: tuple[nn.Module, nn.Module], specimen: Specimen) -> AsNumbers | str:
    """Both networks as functions of one tensor, that tensor, and the sizes of its inputs; or the reason why not.

    The variables are the main input and all other floating-point inputs that are not masks.
    """
    if isinstance(specimen.inputs, Tensor):
        return networks, specimen.main, (tuple(specimen.main.shape),)
    leaves = {id(leaf): leaf for leaf in tree_leaves(arguments(specimen.inputs))}
    variables = [leaf for leaf in leaves.values() if leaf is specimen.main or is_variable(leaf)]
    if len({each.dtype for each in variables}) > 1:
        return "inputs of several dtypes"
    copies = (copy_network(network) for network in networks)
    first, second = (OfNumbers(network, specimen.inputs, variables) for network in copies)
    return (first, second), torch.cat([each.flatten() for each in variables]), tuple(tuple(v.shape) for v in variables)
