"""One convolution layer of a network becomes one attention layer, with everything that others hold on to."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, final

from torch import Tensor, nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.errors import UnsupportedError
from conv2attn.theorem import Convolution, attention_for, read

EncodingName = Literal["quadratic", "enumerated"]
StrideBy = Literal["queries", "pooling"]
Content = Literal["none", "silent"]

HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)
REPARAMETRISATIONS = (WeightNorm, SpectralNorm, BasePruningMethod)


@final
@dataclass(frozen=True)
class Settings:
    """How convolutions are converted; see `theorem.attention_for`."""

    alpha: float | Literal["auto"] = "auto"
    encoding: EncodingName = "quadratic"
    d_head: int | None = None
    stride_by: StrideBy = "queries"
    trainable: bool = False
    content: Content = "none"
    max_error: float | None = None

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `theorem.attention_for`."""
        return dict(vars(self))


@final
@dataclass
class Ties:
    """Parameters made so far, by the parameter that they come from: what was one parameter stays one."""

    made: dict[int, nn.Parameter] = field(default_factory=dict)

    def tie(self, layer: MultiHeadSelfAttention, name: str, source: Tensor) -> None:
        """Gives `layer` the parameter already made from `source`, or remembers the one it has."""
        if isinstance(source, nn.Parameter):
            setattr(layer, name, self.made.setdefault(id(source), getattr(layer, name)))


def attention_from(module: nn.Module, name: str, settings: Settings, ties: Ties) -> MultiHeadSelfAttention:
    """The attention that computes what the convolution `module` does, with its mode, requires_grad and ties.

    A parametrised weight is taken as it evaluates now, and is a plain parameter from here on.

    Raises:
        UnsupportedError, UsageError: as `present` and `theorem.attention_for`.
    """
    with present(module) as convolution:
        layer = attention_for(convolution, **settings.arguments())
        bias = module.bias
    layer.name = name
    layer.train(module.training)
    learned = any(p.requires_grad for p in sources(module, "weight"))
    holder = holder_of_taps(layer) if settings.max_error is None else None
    for factor in ("value", "output"):
        if getattr(layer, factor) is not None:
            getattr(layer, factor).requires_grad_(learned if holder in (factor, None) else settings.trainable)
    if holder is not None:
        ties.tie(layer, holder, getattr(module, "weight"))  # noqa: B009
    if layer.bias is not None and isinstance(bias, Tensor):
        layer.bias.requires_grad_(any(p.requires_grad for p in sources(module, "bias")))
        ties.tie(layer, "bias", bias)
    return layer


@contextmanager
def present(module: nn.Module) -> Iterator[Convolution]:
    """The convolution that `module` is now, read in evaluation mode, in which spectral norms stand still.

    Raises:
        UnsupportedError, UsageError: as `theorem.read`; the weight is on the meta device (C2A103).
    """
    modes = {part: part.training for part in module.modules()}
    try:
        module.eval()
        for hook in reparametrisations(module).values():
            hook(module, ())
        convolution = read(module)
        if convolution.weight.is_meta:
            raise UnsupportedError("C2A103", f"{type(module).__name__} is on the meta device, so it has no weights")
        yield convolution
    finally:
        for part, mode in modes.items():
            part.training = mode


def weight_moves(module: nn.Module) -> bool:
    """Whether each call of `module` changes its weight: in training mode a spectral norm iterates."""
    iterating = any(isinstance(part, _SpectralNorm) and part.training for part in module.modules())
    hooked = any(isinstance(hook, SpectralNorm) for hook in reparametrisations(module).values())
    return iterating or (hooked and module.training)


def reparametrisations(module: nn.Module) -> dict[int, Any]:
    """The pre-hooks with which torch.nn.utils computes a weight or a bias before each call."""
    return {key: hook for key, hook in module._forward_pre_hooks.items() if isinstance(hook, REPARAMETRISATIONS)}


def hooked(module: nn.Module) -> bool:
    """Whether hooks may change what a module is given or returns, beside those that compute a weight."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return len(hooks) > len(reparametrisations(module))


def computed_by_hooks(module: nn.Module) -> tuple[str, ...]:
    """The names that `reparametrisations` compute: weight, bias."""
    hooks = reparametrisations(module).values()
    return tuple(hook._tensor_name if isinstance(hook, BasePruningMethod) else hook.name for hook in hooks)


def sources(module: nn.Module, name: str) -> list[nn.Parameter]:
    """The parameters from which the weight or the bias of `module` is computed, or which it is."""
    if name in getattr(module, "parametrizations", {}):
        return list(module.parametrizations[name].parameters())  # type: ignore[index, union-attr]
    own = {key: parameter for key, parameter in module._parameters.items() if parameter is not None}
    if name in computed_by_hooks(module):
        return [parameter for key, parameter in own.items() if key.startswith(f"{name}_")]
    return [own[name]] if name in own else []


def holder_of_taps(layer: MultiHeadSelfAttention) -> str:
    """Which of value and output holds the taps; the other is an identity. Mirrors `theorem.construction.factors`."""
    if layer.value is None or layer.output is None:
        return "output" if layer.value is None else "value"
    width, d_in, d_out = (n // layer.groups for n in (layer.d_head, layer.d_in, layer.d_out))
    return "output" if width == d_in or (width > d_in and width != d_out) else "value"


def extra_buffers(module: nn.Module) -> dict[str, Tensor | None]:
    """The buffers of a convolution that are not the means of computing its weight or bias."""
    means = tuple(f"{name}_" for name in computed_by_hooks(module))
    return {key: buffer for key, buffer in module._buffers.items() if not means or not key.startswith(means)}


def carry_over(module: nn.Module, layer: MultiHeadSelfAttention, memo: dict[int, Any]) -> None:
    """Copies hooks, further buffers and plain attributes of `module` to `layer`; `memo` holds what is copied already.

    The attributes of a convolution are among them (kernel_size, stride), since hooks and networks read these too.
    """
    gone = reparametrisations(module)
    for hooks in HOOKS:
        carried = copy.deepcopy(getattr(module, hooks), memo)
        if isinstance(carried, dict):
            for hook in gone:
                carried.pop(hook, None)
        setattr(layer, hooks, carried)
    for key, buffer in extra_buffers(module).items():
        layer.register_buffer(key, copy.deepcopy(buffer, memo), key not in module._non_persistent_buffers_set)
    computed = computed_by_hooks(module)
    for key, value in vars(module).items():
        if not hasattr(layer, key) and key not in computed:
            vars(layer)[key] = copy.deepcopy(value, memo)


def attention_layers(network: nn.Module) -> dict[str, MultiHeadSelfAttention]:
    """The attention layers of `network` by name, each once."""
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, MultiHeadSelfAttention)}
