"""Functional convolutions of the original, each also computed by the attention that stands for it in the network."""

from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Weights
from conv2attn.equivalence.bases import Pair, comparable_basis
from conv2attn.equivalence.differential import Measured, difference_from, run
from conv2attn.equivalence.outputs import most_different
from conv2attn.errors import UnsupportedError
from conv2attn.models.conversion.discovery import copy_network
from conv2attn.models.conversion.functional import FUNCTIONS, as_convolution
from conv2attn.models.conversion.redirection import CHILD, AttendingCalls, geometry_of, pause
from conv2attn.theorem import Convolution


@final
@dataclass
class MetCall:
    """A functional convolution of one geometry, the attention that stands for it, and what was seen of both.

    `worst` is the input on which they differed most, without a batch, and what both made of it.
    """

    name: str
    convolution: Convolution
    layer: MultiHeadSelfAttention
    seen: Measured = field(default_factory=Measured)
    worst: tuple[Tensor, Tensor, Tensor] | None = None

    def keep(self, image: Tensor, result: Tensor, theirs: Tensor) -> None:
        """Keeps as `worst` the image of these on which both outputs differ most, and what both make of it."""
        if image.ndim == len(self.convolution.kernel_size) + 2:
            number = most_different(result, theirs, len(image))[0]
            image, result, theirs = image[number], result[number], theirs[number]
        self.worst = image.detach().clone(), result.detach().double().cpu(), theirs.detach().double().cpu()

    def pair(self) -> Pair:
        """The bases of the convolution and of its attention.

        Raises:
            UnsupportedError: the attention cannot be read.
        """
        convolution = self.convolution
        weights = Weights(None, convolution.taps(), convolution.bias, convolution.groups)
        scattered = "transpose" in self.name, False
        return Pair(comparable_basis(convolution), comparable_basis(self.layer, weights), scattered)

    @property
    def signature(self) -> str:
        """The convolution in one line."""
        return self.convolution.describe(self.name.rpartition(":")[2])


class Comparison(TorchFunctionMode):
    """While active, functional convolutions inside modules that attend in `network` are computed both ways."""

    def __init__(self, network: nn.Module):
        super().__init__()
        named = dict(network.named_modules())
        attending = {name: module._modules.get(CHILD) for name, module in named.items()}
        self.attending = {name: calls for name, calls in attending.items() if isinstance(calls, AttendingCalls)}
        self.resting = {name for name, module in named.items() if pause in module._forward_pre_hooks.values()}
        self.resting |= {name for name, module in named.items() if isinstance(module, MultiHeadSelfAttention)}
        self.running: list[str] = []
        self.met: dict[tuple[Any, ...], MetCall] = {}

    def watch(self, name: str, module: nn.Module) -> None:
        """Lets a module of the original say when it is running."""

        def leave(*_: Any) -> None:
            self.running.pop()

        module.register_forward_pre_hook(lambda *_: self.running.append(name), prepend=True)
        module.register_forward_hook(leave, always_call=True)

    def owner(self) -> str | None:
        """The innermost running module that attends, unless one inside it stays as it is."""
        for name in reversed(self.running):
            if name in self.attending:
                return name
            if name in self.resting:
                return None
        return None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`, and beside it by attention where that is what the network does."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        owner = self.owner() if func in FUNCTIONS else None
        if owner is not None and FUNCTIONS[func][0] not in self.attending[owner].untouched:
            try:
                convolution = as_convolution(func, args, kwargs)
            except UnsupportedError:
                return result
            image = args[0] if args else kwargs["input"]
            self.compare(owner, FUNCTIONS[func][0], convolution, image, result)
        return result

    def compare(self, owner: str, function: str, convolution: Convolution, image: Tensor, result: Tensor) -> None:
        """Notes the difference on one call, for each geometry and weight apart."""
        calls, key = self.attending[owner], (owner, *geometry_of(convolution), id(convolution.weight))
        layer = calls.layer_for(convolution)
        assert isinstance(layer, MultiHeadSelfAttention)
        met = self.met.setdefault(key, MetCall(f"{owner or '(root)'}:{function}", convolution, layer))
        error, trouble, theirs = difference_from(result, lambda: calls(convolution, image))
        worse = met.worst is None or error > met.seen.max_error
        if theirs is not None and not trouble and result.numel() and worse:
            met.keep(image, result, theirs)
        met.seen.add(error, trouble, image, result, len(convolution.kernel_size))


def compare_calls(original: nn.Module, network: nn.Module, images: Any) -> list[MetCall]:
    """The functional convolutions met when a copy of `original` runs on `images` that `network` attends to."""
    comparison = Comparison(network)
    if not comparison.attending:
        return []
    trial = copy_network(original)
    for name, module in trial.named_modules():
        comparison.watch(name, module)
    with comparison:
        run(trial, images)
    return list(comparison.met.values())
