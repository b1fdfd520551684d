"""The parts of an ordinary transformer that a start sets: positions, writers to tokens, queries and keys."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import Selection, call_network
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.values import OUTPUTS, first_linear, head_count, projections_of
from conv2attn.torch_internals import tree_map_only

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
        sizes = [*(() if self.sides is None else self.sides)] if isinstance(self.sides, Sequence | None) else [None]
        sizes += [] if self.heads is None else [self.heads]
        if (
            not isinstance(self.positions, str | None)
            or isinstance(self.writers, str)
            or not isinstance(self.writers, Sequence)
            or not all(isinstance(pattern, str) for pattern in self.writers)
            or not all(type(size) is int and size > 0 for size in sizes)
            or self.sides == ()
        ):
            raise UsageError(
                "C2A006",
                f"{self} are not names, patterns and positive whole numbers",
                "Pass names as text, and positive whole numbers.",
            )


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
        raise UsageError(
            "C2A008",
            f"{type(network).__name__} has no layer with queries and keys",
            "Pass a network with attention, or name its parts with parts=Parts(...).",
        )
    return layers


@dataclass(eq=False)
class Trace:
    """A run: the modules that make vectors, in their order, and the tokens that each layer is called on."""

    order: list[str] = field(default_factory=list)
    tokens: dict[str, Tensor] = field(default_factory=dict)


def trace_run(network: nn.Module, layers: Mapping[str, StartLayer], inputs: Any, seed: int | None = None) -> Trace:
    """Runs a network and records the order of its modules; what it draws begins at the seed.

    Raises:
        UsageError: it fails (C2A009).
        UnsupportedError: a layer runs twice (C2A604).
    """
    trace, names = Trace(), {module: name for name, module in network.named_modules()}

    def record_order(module: nn.Module, args: Any, output: Tensor) -> None:
        trace.order.append(names[module])

    def record_tokens(layer: nn.Module, args: Any, kwargs: Any) -> None:
        if names[layer] in trace.tokens:
            raise UnsupportedError(
                "C2A604",
                f"{names[layer]} runs twice, on tokens of two depths",
                "Take a network in which each layer runs once.",
            )
        trace.tokens[names[layer]] = tokens_in(layer, args, kwargs).detach().clone()

    hooks = [module.register_forward_hook(record_order) for module in names if isinstance(module, Writer)]
    hooks += [layer.module.register_forward_pre_hook(record_tokens, with_kwargs=True) for layer in layers.values()]
    try:
        call_network(network, inputs, seed)
    except UnsupportedError:
        raise
    except Exception as error:
        message = str(error).partition("\n")[0]
        raise UsageError("C2A009", f"the network fails on its input ({message})", "Pass an example_input.") from error
    finally:
        for hook in hooks:
            hook.remove()
    return trace


def check_same_tokens(network: nn.Module, first: Trace, second: Trace) -> None:
    """Raises: UnsupportedError: two runs on one input have other tokens, so that no table tells where they are."""
    pairs = [(tokens, second.tokens[name]) for name, tokens in first.tokens.items() if name in second.tokens]
    if not all(a.shape == b.shape and torch.allclose(a, b, 1e-3, 1e-4, equal_nan=True) for a, b in pairs):
        reason = f"{type(network).__name__} drops or shuffles tokens at random, as masked autoencoders do"
        remedy = (
            "Keep all of them (mask_ratio=0), and pass an example_input that fixes their order, with ViTMAE's noise."
        )
        raise UnsupportedError("C2A604", reason, remedy)


def check_grid_tokens(
    network: nn.Module, layers: Mapping[str, StartLayer], trace: Trace, inputs: Any, count: int
) -> None:
    """Raises: UnsupportedError: one of the last `count` tokens is not on the grid: other images leave it as it is."""
    generator = torch.Generator().manual_seed(1)  # not that of `start_inputs`

    def with_noise(tensor: Tensor) -> Tensor:
        noise = torch.randn(tensor.shape, generator=generator)
        return tensor + noise.to(tensor) if tensor.is_floating_point() and tensor.ndim > 2 else tensor

    name = next(iter(layers))
    other = trace_run(network, layers, tree_map_only(Tensor, with_noise, inputs)).tokens[name]
    changed = (trace.tokens[name] != other).any(2).any(0)
    if changed.any() and not changed[-count:].all():
        reason = f"{int((~changed[-count:]).sum())} of its last {count} tokens do not depend on the images"
        raise UnsupportedError(
            "C2A604", f"{name}: {reason}", "Take a network whose last tokens are its grid, row by row."
        )


def layers_on_table(layers: Mapping[str, StartLayer], trace: Trace) -> tuple[dict[str, StartLayer], tuple[str, ...]]:
    """The layers whose tokens have the most common shape, and a sentence for each other layer."""
    shapes = {
        name: tuple(tokens.shape[1:])
        for name, tokens in trace.tokens.items()
        if tokens.ndim == 3 and tokens.shape[2] == layers[name].query.shape[1]
    }
    usual = next((shape for shape, _ in Counter(shapes.values()).most_common(1)), None)
    notes = []
    for name in sorted(layers.keys() - {name for name, shape in shapes.items() if shape == usual}):
        shape = "x".join(map(str, trace.tokens[name].shape[1:])) if name in trace.tokens else ""
        notes.append(f"{name} is left alone: " + (f"it asks from {shape} numbers" if shape else "it did not run"))
    return {name: layer for name, layer in layers.items() if shapes.get(name, ()) == usual}, tuple(notes)


def tokens_in(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """The first tensor that a module was called with, as (batch, tokens, width)."""
    first = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    return first.transpose(0, 1) if getattr(module, "batch_first", True) is False else first


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


def default_writers(network: nn.Module, layers: Mapping[str, StartLayer], trace: Trace, width: int) -> Iterator[str]:
    """The modules whose outputs are added to the tokens: embeddings, and in each block two linear layers, the output
    of the attention and the last one."""
    modules = dict(network.named_modules())
    blocks = {name: block_of(network, name, layers) for name in layers}
    inside = {each: block for each in modules for block in blocks.values() if each.startswith(f"{block}.")}
    writing = [name for name in dict.fromkeys(trace.order) if width_of(modules[name]) == width]
    first = min((trace.order.index(name) for name in trace.order if name in inside), default=len(trace.order))
    before = [name for name in writing if name not in inside and trace.order.index(name) < first]
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
        raise UsageError(
            "C2A008",
            f"positions={name!r} is no parameter or buffer of the network",
            "Name one of its parameters or buffers.",
        )
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


def start_inputs(network: nn.Module, example: Any) -> Any:
    """The inputs for a run: the example, or two images of noise of its size or of the size read from the network.

    The size is read from the `image_size` or `img_size` of a module or its configuration, else by a grid of patches or
    a square table of positions and the stride of the first convolution.

    Raises:
        UsageError: nothing tells a size (C2A005), or it is not one (C2A006).
    """
    is_size = isinstance(example, tuple | list) and len(example) > 1
    if example is not None and not (is_size and all(isinstance(size, int) for size in example)):
        return example
    first = next((module for module in network.modules() if isinstance(module, nn.Conv2d)), None)
    size = example if example is not None else (getattr(first, "in_channels", None), *image_sides(network, first))
    if not all(type(side) is int and side > 0 for side in size) or math.prod(size) > 2**28:
        if example is not None:
            raise UsageError(
                "C2A006",
                f"example_input={example!r} is no size of an image, (channels, *sides)",
                "Pass (channels, *sides) of positive whole numbers, such as (3, 224, 224).",
            )
        reason = f"{type(network).__name__} does not tell the size of its images"
        raise UsageError("C2A005", reason, "Pass an example_input.")
    return torch.randn(2, *size, generator=torch.Generator().manual_seed(0)).to(next(network.parameters()))


def image_sides(network: nn.Module, first: nn.Conv2d | None) -> tuple[Any, ...]:
    """The sides of the images of a network, as far as its attributes have them."""
    for holder in (each for module in network.modules() for each in (module, getattr(module, "config", None))):
        for size in (getattr(holder, "image_size", None), getattr(holder, "img_size", None)):
            if isinstance(size, int | tuple | list) and size:
                return (size, size) if isinstance(size, int) else tuple(size)
    grid: Any = next((g for m in network.modules() if (g := getattr(m, "grid_size", None))), None)
    tables = [v for k, v in [*network.named_parameters(), *network.named_buffers()] if "pos" in k and v.ndim >= 2]
    counts = [value.numel() // value.shape[-1] for value in tables]
    side = next((math.isqrt(n - k) for n in counts for k in range(3) if math.isqrt(n - k) ** 2 == n - k), 0)
    sides = tuple(grid) if grid else (side, side)
    return tuple(n * stride for n, stride in zip(sides, first.stride, strict=False)) if first is not None else (None,)
