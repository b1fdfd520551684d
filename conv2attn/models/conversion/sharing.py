"""Which convolutions have to stay the modules they are, because others hold on to what is inside them."""

from collections.abc import Iterator, Mapping

from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.models.conversion.replacement import computed_by_hooks, extra_buffers, sources

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def held_together(network: nn.Module, replaced: Mapping[str, nn.Module]) -> dict[str, str]:
    """The names in `replaced` that cannot be replaced by attention layers of their own, each with the reason.

    A parameter that only replaced convolutions of one kind share stays one parameter of their attention layers. One
    that something else holds too, or that is a weight here and a transposed weight there, has to stay where it is.
    """
    reasons = {name: reason for name, module in replaced.items() if (reason := own_parts(module))}
    while more := {name: reason for name, reason in ties(network, replaced, reasons) if name not in reasons}:
        reasons |= more
    return reasons


def own_parts(module: nn.Module) -> str:
    """A part of a convolution that no attention layer has a place for, in words; empty if there is none."""
    known = {id(parameter) for name in ("weight", "bias") for parameter in sources(module, name)}
    parts = [
        key for key, parameter in module._parameters.items() if parameter is not None and id(parameter) not in known
    ]
    parts += [key for key in module._modules if key != "parametrizations"]
    parts += [key for key in extra_buffers(module) if key in {"value", "output", "query", "key", "encoding"}]
    parts += [key for key in extra_buffers(module) if hasattr(MultiHeadSelfAttention, key)]
    return f"it has a {parts[0]} of its own" if parts else ""


def ties(network: nn.Module, replaced: Mapping[str, nn.Module], kept: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Pairs of a name in `replaced` and the reason why one of its parameters cannot move."""
    names = {module: name for name, module in replaced.items() if name not in kept}
    owners: dict[int, list[tuple[nn.Module, str, str]]] = {}
    for path, module in network.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append((module, path, key))
    for module, name in names.items():
        inside = set(module.modules())
        for parameter in module.parameters():
            for other, path, key in owners[id(parameter)]:
                if other not in inside and (other not in names or tie_kind(other, key) != tie_kind(module, key)):
                    yield name, f"it shares a parameter with {path or 'the network'}.{key}"


def tie_kind(module: nn.Module, key: str) -> tuple[object, ...]:
    """Two convolutions can share the parameter `key` as attention layers if this is equal for both."""
    alone = module if computed_by_hooks(module) or hasattr(module, "parametrizations") else None
    if key == "bias":
        return (alone,)
    return (alone, isinstance(module, TRANSPOSED), getattr(module, "groups", 1))
