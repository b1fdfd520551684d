"""The parts of an ordinary transformer that a start sets: positions, writers to tokens, queries and keys.

In timm's: `pos_embed`; `patch_embed.proj`, `blocks.0.attn.proj` and `blocks.0.mlp.fc2`; rows of `blocks.0.attn.qkv`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import final

from torch import Tensor, nn

from conv2attn.arguments import Selection
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.values import head_count, projections_of, value_and_output

ROTARY = re.compile("rope|rotary", re.IGNORECASE)
Writer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Embedding


@final
@dataclass(frozen=True)
class Parts:
    """Names of the parts of a user's transformer; other parts are searched.

    Args:
        positions: name of the parameter or buffer that is added to the tokens, (tokens, width) or (1, tokens, width).
        writers: glob patterns of the linear layers and convolutions whose outputs are added to the tokens.
        sides: of the grid of tokens.
    Raises:
        UsageError: an argument has another type (C2A006).
    """

    positions: str | None = None
    writers: Sequence[str] = ()
    sides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        sizes = (self.sides or ()) if isinstance(self.sides, Sequence | None) else (None,)
        if (
            not isinstance(self.positions, str | None)
            or isinstance(self.writers, str)
            or not isinstance(self.writers, Sequence)
            or not all(isinstance(pattern, str) for pattern in self.writers)
            or not all(type(size) is int and size > 0 for size in sizes)
            or self.sides == ()
        ):
            reason = f"{self} are not names, patterns and positive whole numbers"
            raise UsageError("C2A006", reason, "Pass names as text, and positive whole numbers.")


@final
@dataclass(frozen=True, eq=False)
class StartLayer:
    """One attention layer: views of its query and key weights (heads * width, d) and biases, and its heads."""

    name: str
    module: nn.Module
    query: Tensor
    key: Tensor
    biases: tuple[Tensor, ...]
    heads: int

    @property
    def width(self) -> int:
        """Width of a query of one head."""
        return len(self.query) // self.heads


def attending_layers(network: nn.Module) -> dict[str, StartLayer]:
    """The layers whose queries and keys are linear in their tokens, by name.

    Raises:
        UsageError: there is none (C2A008), or the number of heads is unknown (C2A502).
    """
    layers = {}
    for name, module in network.named_modules():
        maps = projections_of(module)
        if "query" not in maps:
            continue
        query, key = (maps[kind].weight.detach() for kind in ("query", "key"))
        biases = tuple(bias.detach() for kind in ("query", "key") if (bias := maps[kind].bias) is not None)
        rows, width = len(query), getattr(module, "head_dim", None)
        heads = head_count(module) or (rows // width if isinstance(width, int) and width > 0 else 0)
        if not heads or rows % heads:
            reason = f"{name}: the number of heads of its {rows} queries is unknown"
            raise UsageError("C2A502", reason, "Give the layer an attribute num_heads.")
        layers[name] = StartLayer(name, module, query, key, biases, heads)
    if not layers:
        reason = f"{type(network).__name__} has no layer with queries and keys"
        raise UsageError("C2A008", reason, "Pass a network with attention, or one that names its parts as timm does.")
    return layers


def table_of(network: nn.Module, name: str | None, tokens: int, width: int) -> tuple[str, Tensor]:
    """The table of absolute positions, by name, as a view (rows, width).

    Raises:
        UnsupportedError: there is no table, or positions are rotary (C2A604).
        UsageError: there is no table of this name (C2A008).
    """
    state = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    if name is not None and name not in state:
        reason = f"positions={name!r} is not a parameter or buffer of the network"
        raise UsageError("C2A008", reason, "Name one of its parameters or buffers.")
    named = [key for key in state if any("pos" in part for part in key.split(".")[-2:]) and not ROTARY.search(key)]
    tables = {
        key: value.detach().reshape(-1, width)
        for key in (named if name is None else [name])
        if (value := state[key]).is_floating_point()
        and value.ndim > 1
        and value.shape[-1] == width
        and value.numel() // width <= tokens
    }
    if tables:
        return max(tables.items(), key=lambda table: len(table[1]))
    shapes = [f"{key} {'x'.join(map(str, value.shape))}" for key, value in state.items() if (name or "pos") in key]
    finding = f"those named so are {', '.join(shapes[:3])}" if shapes else "it adds none"
    if any(ROTARY.search(key) for key, _ in network.named_modules()):
        finding = "its positions are rotary, and turn queries and keys inside attention"
    kind = f"{type(network).__name__} has no table of absolute positions, {width} numbers for each of {tokens} tokens"
    raise UnsupportedError(
        "C2A604",
        f"{kind}: {finding}",
        "Pass an example_input of as many tokens as its table has rows, name the table with "
        "parts=Parts(positions=...), or take another network.",
    )


def writers_of(network: nn.Module, layers: Mapping[str, StartLayer], width: int, patterns: Sequence[str]) -> list[str]:
    """The names of the modules whose outputs are added to the tokens: those that fit a pattern, if patterns are passed.

    By default, the embeddings and the last module before the first block, and in each block two linear layers: the
    output of the attention, and the last one.

    Raises:
        UsageError: a pattern fits no linear layer, convolution or embedding (C2A008).
    """
    modules = {name: module for name, module in network.named_modules() if isinstance(module, Writer)}
    selection = Selection.of(patterns)
    selection.check([*modules], "linear layer, convolution or embedding")
    if patterns:
        return [name for name in modules if selection.wants(name)]
    writing = [name for name, module in modules.items() if width_of(module) == width]
    blocks = {name: f"{block_of(network, name, layers)}." for name in layers}
    before = [*takewhile(lambda name: not name.startswith(tuple(blocks.values())), writing)]
    embeddings = [name for name in before if isinstance(modules[name], nn.Embedding)]
    writers = [*embeddings, *[name for name in before if name not in embeddings][-1:]]
    for layer, block in blocks.items():
        factors = value_and_output(network, layer)
        output = [name for name, module in modules.items() if factors and module is factors[1]]
        beside = [name for name in writing if name.startswith(block) and not name.startswith(f"{layer}.")]
        writers += [*output, *[name for name in beside if name not in output][-1:]]
    return writers


def block_of(network: nn.Module, name: str, layers: Mapping[str, StartLayer]) -> str:
    """The name of the block of an attention layer: the largest module that contains no other, or an item of a list."""
    while outer := name.rpartition(".")[0]:
        alone = sum(f"{each}.".startswith(f"{outer}.") for each in layers) == 1
        if not alone or isinstance(network.get_submodule(outer), nn.ModuleList | nn.Sequential):
            break
        name = outer
    return name


def width_of(module: Writer) -> int:
    """The length of the vectors that a module returns."""
    return module.embedding_dim if isinstance(module, nn.Embedding) else len(module.weight)
