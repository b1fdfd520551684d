"""Functional convolutions that a network computes by attention, each computed as it was written beside it."""

from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Weights
from conv2attn.equivalence.bases import Pair, comparable_basis
from conv2attn.equivalence.differential import Measured, difference_from
from conv2attn.equivalence.outputs import most_different
from conv2attn.models.conversion.functional import FUNCTIONS
from conv2attn.models.conversion.redirection import CHILD, AttendingCalls, geometry_of
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


@final
@dataclass
class WatchedCalls:
    """A forward hook of the attention inside the module `owner`: each call is computed as it was written, too."""

    owner: str
    met: dict[tuple[Any, ...], MetCall]

    def __call__(self, module: AttendingCalls, args: Any, theirs: Tensor) -> None:
        """Notes the difference on one call, for each geometry and weight apart."""
        convolution, image, plain = args
        result = plain()
        layer, key = module.layer_for(convolution), (self.owner, *geometry_of(convolution), id(convolution.weight))
        assert isinstance(layer, MultiHeadSelfAttention)
        name = f"{self.owner or '(root)'}:{FUNCTIONS[plain.func][0]}"
        met = self.met.setdefault(key, MetCall(name, convolution, layer))
        error, trouble, _ = difference_from(result, lambda: theirs)
        if not trouble and result.numel() and (met.worst is None or error > met.seen.max_error):
            met.keep(image, result, theirs)
        met.seen.add(error, trouble, image, result, len(convolution.kernel_size))


def watch_calls(network: nn.Module) -> dict[tuple[Any, ...], MetCall]:
    """The functional convolutions that `network` computes by attention, noted as it runs."""
    met: dict[tuple[Any, ...], MetCall] = {}
    for name, module in network.named_modules():
        if isinstance(module, AttendingCalls):
            module.register_forward_hook(WatchedCalls(name.removesuffix(CHILD).removesuffix("."), met))
    return met
