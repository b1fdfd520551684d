"""One convolution layer of a network becomes one attention layer, with everything that others hold on to."""

from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.theorem import attention_for, read

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

    alpha: float | str = "auto"
    encoding: str = "quadratic"
    d_head: int | None = None
    stride_by: str = "queries"
    trainable: bool = False

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `theorem.attention_for`."""
        return dict(vars(self))


@final
@dataclass
class Ties:
    """Parameters made so far, by the parameter that they come from: what was one parameter stays one."""

    made: dict[tuple[int, str, int], nn.Parameter] = field(default_factory=dict)

    def tie(self, layer: MultiHeadSelfAttention, name: str, source: Tensor) -> None:
        """Gives `layer` the parameter already made from `source`, or remembers the one it has."""
        if isinstance(source, nn.Parameter):
            made = self.made.setdefault((id(source), name, layer.groups), getattr(layer, name))
            setattr(layer, name, made)


def replace_module(module: nn.Module, name: str, settings: Settings, ties: Ties) -> MultiHeadSelfAttention:
    """The attention layer that takes the place of the convolution `module`, under the name `name` in reports.

    Mode, requires_grad, hooks and further buffers are carried over; a parametrised weight is converted as it evaluates
    now, and its parametrisation ends here.

    Raises:
        UnsupportedError, UsageError: as `theorem.read` and `theorem.attention_for`.
    """
    mode = module.training
    module.eval()
    reparametrised = refresh_weight(module)
    convolution = read(module)
    layer = attention_for(convolution, **settings.arguments())
    module.train(mode)
    layer.name = name
    layer.train(mode)
    for hooks in HOOKS:
        setattr(layer, hooks, getattr(module, hooks))
    if reparametrised or hasattr(module, "parametrizations"):
        sources = list(module.parameters())
    else:
        sources = [parameter for parameter in (module.weight, module.bias) if isinstance(parameter, nn.Parameter)]
        for key, buffer in module._buffers.items():
            layer.register_buffer(key, buffer, persistent=key not in module._non_persistent_buffers_set)
    holder = "output" if layer.value is None or (settings.d_head is None and layer.d_head == layer.d_in) else "value"
    learn_weight = any(parameter.requires_grad for parameter in sources if parameter is not module.bias)
    getattr(layer, holder).requires_grad_(learn_weight or settings.trainable)
    ties.tie(layer, holder, getattr(module, "weight", convolution.weight))
    if layer.bias is not None and isinstance(module.bias, Tensor):
        layer.bias.requires_grad_(module.bias.requires_grad)
        ties.tie(layer, "bias", module.bias)
    return layer


def refresh_weight(module: nn.Module) -> bool:
    """Lets the hooks that compute the weight compute it now, and removes them; whether there were any."""
    hooks = {key: hook for key, hook in module._forward_pre_hooks.items() if isinstance(hook, REPARAMETRISATIONS)}
    for key, hook in hooks.items():
        hook(module, ())
        del module._forward_pre_hooks[key]
    return bool(hooks)


def attention_layers(network: nn.Module) -> dict[str, MultiHeadSelfAttention]:
    """The attention layers of `network` by name, each once."""
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, MultiHeadSelfAttention)}
