"""The parts of an ordinary transformer that a start sets: positions, writers to tokens, queries and keys.

In timm's: `pos_embed`; `patch_embed.proj`, `blocks.0.attn.proj` and `blocks.0.mlp.fc2`; rows of `blocks.0.attn.qkv`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from conv2attn.arguments import Selection
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.values import OUTPUTS, first_linear, head_count, projections_of

ROTARY = re.compile("rope|rotary", re.IGNORECASE)
Writer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Embedding


@final
@dataclass(frozen=True)
class Parts:
    """Names of the parts of a user's transformer; parts that are left out are searched.

    Args:
        positions: name of the parameter or buffer that is added to the tokens, (tokens, width) or (1, tokens, width).
        writers: glob patterns of the linear layers and convolutions whose outputs are added to the tokens.
        heads: the number of heads of each layer.
        sides: of the grid of tokens.
    Raises:
        UsageError: one of another type (C2A006).
    """

    positions: str | None = None
    writers: Sequence[str] = ()
    heads: int | None = None
    sides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        sizes = (*(self.sides or ()), self.heads or 1) if isinstance(self.sides, Sequence | None) else (None,)
        if (
            not isinstance(self.positions, str | None)
            or isinstance(self.writers, str)
            or not isinstance(self.writers, Sequence)
            or not all(isinstance(pattern, str) for pattern in self.writers)
            or not all(type(size) is int and size > 0 for size in sizes)
            or self.sides == ()
            or self.heads == 0
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
        """Numbers in a query of one head."""
        return len(self.query) // self.heads


def attending_layers(network: nn.Module, heads: int | None) -> dict[str, StartLayer]:
    """The layers whose queries and keys are linear in their tokens, by name.

    Raises:
        UsageError: there is none (C2A008), or nothing says how many heads one has (C2A502).
    """
    layers = {}
    for name, module in network.named_modules():
        maps = projections_of(module)
        if "query" not in maps:
            continue
        query, key = (maps[kind].weight.detach() for kind in ("query", "key"))
        biases = tuple(bias.detach() for kind in ("query", "key") if (bias := maps[kind].bias) is not None)
        rows, width = len(query), getattr(module, "head_dim", None)
        count = heads or head_count(module) or (rows // width if isinstance(width, int) and width > 0 else 0)
        if not count or rows % count:
            reason = f"{name}: nothing tells how many heads its {rows} queries are of"
            raise UsageError("C2A502", reason, "Name it: parts=Parts(heads=...).")
        layers[name] = StartLayer(name, module, query, key, biases, count)
    if not layers:
        reason = f"{type(network).__name__} has no layer with queries and keys"
        raise UsageError("C2A008", reason, "Pass a network with attention, or name its parts with parts=Parts(...).")
    return layers


def block_of(network: nn.Module, name: str, layers: Mapping[str, StartLayer]) -> str:
    """The name of the block of an attention layer: the largest module that contains no other, or an item of a list."""
    while name:
        outer = name.rpartition(".")[0]
        holder = network.get_submodule(outer)
        layers_inside = sum(each == outer or each.startswith(f"{outer}.") for each in layers) if outer else len(layers)
        if isinstance(holder, nn.ModuleList | nn.Sequential) or layers_inside > 1 or not outer:
            return name
        name = outer
    return name


def default_writers(
    network: nn.Module, layers: Mapping[str, StartLayer], order: Sequence[str], width: int
) -> Iterator[str]:
    """The modules whose outputs are added to the tokens: embeddings, and in each block two linear layers, the output
    of the attention and the last one.

    Args:
        order: names of the modules that make vectors, as they run.
    """
    modules = dict(network.named_modules())
    blocks = {name: block_of(network, name, layers) for name in layers}
    inside = {each: block for each in modules for block in blocks.values() if each.startswith(f"{block}.")}
    writing = [name for name in dict.fromkeys(order) if width_of(modules[name]) == width]
    first = min((order.index(name) for name in order if name in inside), default=len(order))
    before = [name for name in writing if name not in inside and order.index(name) < first]
    yield from (name for name in before if isinstance(modules[name], nn.Embedding))
    yield from [name for name in before if not isinstance(modules[name], nn.Embedding)][-1:]
    for name, block in blocks.items():
        parent = modules[name.rpartition(".")[0]] if "." in name else network
        output = first_linear(modules[name], OUTPUTS) or first_linear(parent, OUTPUTS)
        attention_modules = set(modules[name].modules())
        last = [
            each for each in writing if inside.get(each) == block and modules[each] not in attention_modules | {output}
        ][-1:]
        yield from (each for each, module in modules.items() if module is output or each in last)


def width_of(module: nn.Module) -> int:
    """The length of the vectors that a module returns."""
    return module.embedding_dim if isinstance(module, nn.Embedding) else len(module.weight)  # type: ignore[arg-type]


def named_writers(network: nn.Module, patterns: Sequence[str]) -> list[str]:
    """The linear layers, convolutions and embeddings that fit a pattern.

    Raises:
        UsageError: a pattern fits none (C2A008).
    """
    names = [name for name, module in network.named_modules() if isinstance(module, Writer)]
    selection = Selection.of(patterns)
    selection.check(names, "linear layer, convolution or embedding")
    return [name for name in names if patterns and selection.wants(name)]


def table_of(network: nn.Module, name: str | None, tokens: int, width: int) -> tuple[str, Tensor]:
    """The table of absolute positions, by name, as a view (rows, width).

    Raises:
        UnsupportedError: there is none, or it is rotary (C2A604).
        UsageError: there is none of this name (C2A008).
    """
    state = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    if name is not None and name not in state:
        reason = f"positions={name!r} is no parameter or buffer of the network"
        raise UsageError("C2A008", reason, "Name one of its parameters or buffers.")
    fits = {
        key: value
        for key, value in state.items()
        if (name == key or (name is None and any("pos" in part for part in key.split(".")[-2:])))
        and value.is_floating_point()
        and value.ndim > 1
        and value.shape[-1:] == (width,)
        and value.numel() // width <= tokens
        and (name is not None or not ROTARY.search(key))
    }
    if not fits:
        tables = [f"{key} {'x'.join(map(str, value.shape))}" for key, value in state.items() if (name or "pos") in key]
        found = f"those named so are {', '.join(tables[:3])}" if tables else "it adds none"
        if any(ROTARY.search(key) for key, _ in network.named_modules()):
            found = "its positions are rotary, and turn queries and keys inside attention"
        raise UnsupportedError(
            "C2A604",
            f"{type(network).__name__} has no table of absolute positions, {width} numbers for each of {tokens} tokens"
            f": {found}",
            "Pass an example_input of as many tokens as its table has rows, name the table with "
            "parts=Parts(positions=...), or take another network.",
        )
    key = max(fits, key=lambda each: fits[each].numel())
    return key, fits[key].detach().reshape(-1, width)
