"""Networks of ids as networks of numbers: the rows of the first embedding are the input, and the ids are fixed.

An example: BERT on the ids (5, 17, 42) becomes a network of 3 rows of numbers. Its positions, masks and everything else
that it reads off the ids stay as they are, and the formula is one of all embeddings of tokens at these places.
"""

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.networks.copies import copy_network
from conv2attn.networks.specimens import Inputs
from conv2attn.torch_internals import tree_map_only

DESCRIBED = ", where the inputs are the embeddings of ids at these places"


@final
class Rows(nn.Module):
    """Stands in the place of an embedding and returns rows that were put in beforehand."""

    def __init__(self, embedding: nn.Embedding, rows: list[Tensor]):
        super().__init__()
        self.weight, self.rows = embedding.weight, rows  # a last layer may share the weight
        self.training = embedding.training

    def forward(self, ids: Tensor) -> Tensor:
        """The rows, once for a call of the network."""
        return self.rows.pop()


@final
class Embedded(nn.Module):
    """A network called with fixed inputs, whose first embedding returns the rows that it is given.

    Args:
        network: a copy, which is changed.
        name: of the embedding.
    """

    def __init__(self, network: nn.Module, name: str, inputs: Inputs):
        super().__init__()
        self.rows, self.inputs = list[Tensor](), inputs
        owner, _, own_name = name.rpartition(".")
        parent, embedding = network.get_submodule(owner), network.get_submodule(name)
        assert isinstance(embedding, nn.Embedding)
        parent._modules[own_name] = Rows(embedding, self.rows)
        self.network, self.training = network, network.training

    def forward(self, rows: Tensor) -> Any:
        """The output of the network for these rows."""
        self.rows.append(rows)
        try:
            return self.network(**self.inputs) if isinstance(self.inputs, Mapping) else self.network(self.inputs)
        finally:
            self.rows.clear()


def embedding_of_ids(network: nn.Module, inputs: Inputs, ids: Tensor) -> str:
    """The name of the embedding that reads the ids, once a call; empty where there is no single one."""
    copy, calls = copy_network(network), list[tuple[str, bool]]()

    def record(name: str) -> Any:
        def hook(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
            same = bool(arguments) and arguments[0].numel() == ids.numel()
            calls.append((name, same and torch.equal(arguments[0].flatten(), ids.flatten())))

        return hook

    for name, module in copy.named_modules():
        if type(module) is nn.Embedding and module.max_norm is None and name:
            module.register_forward_hook(record(name))
    with torch.no_grad():
        copy(**inputs) if isinstance(inputs, Mapping) else copy(inputs)
    reading = [name for name, same in calls if same]
    return reading[0] if reading and [name for name, _ in calls].count(reading[0]) == 1 else ""


def of_embeddings(
    networks: tuple[nn.Module, nn.Module], inputs: Inputs, ids: Tensor
) -> tuple[tuple[nn.Module, nn.Module], Tensor] | str:
    """Both as networks of rows of numbers, and the rows of these ids; or why not, in words.

    Two sequences are followed where there is one, so that a formula that couples those of a batch is seen.
    """
    if isinstance(inputs, Tensor):
        inputs = ids
    if len(ids) == 1:
        inputs = tree_map_only(Tensor, lambda each: torch.cat([each, each.flip(-1)]), inputs)
        ids = torch.cat([ids, ids.flip(-1)])
    found, tables = list[nn.Module](), list[Tensor]()
    for which, network in zip(("first", "second"), networks, strict=True):
        try:
            name = embedding_of_ids(network, inputs, ids)
        except Exception as error:  # the code of a network may raise anything
            return f"the {which} network does not run on two sequences: {type(error).__name__}"
        if not name:
            return f"the {which} network has no single embedding that reads the ids"
        embedding = network.get_submodule(name)
        assert isinstance(embedding, nn.Embedding)
        tables.append(embedding.weight.detach()[ids])
        found.append(Embedded(copy_network(network), name, inputs))
    if tables[0].shape != tables[1].shape or not torch.equal(*tables):
        return "the embeddings of these ids are not the same numbers in both"
    return (found[0], found[1]), tables[0].clone()
