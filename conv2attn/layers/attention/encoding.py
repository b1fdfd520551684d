"""The relative positions of a layer: the tensors of a family of heads, registered as what trains or stays."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from conv2attn.layers.attention.recipe import lie_side_by_side
from conv2attn.theory.basis import FAMILIES, Positions, Sides


@final
class Encoding(nn.Module):
    """Holds the fields of a family of heads under their names, and makes the family of the live tensors.

    The v of Eq. (8) enters only through `W_hat_key^T v`, a vector of d_position numbers a head; a family holds it by
    its meaning, a centre and a sharpness, so that scores are computed without the cancellation of the expanded form.
    Positions that train are parameters. Others are buffers outside the state dict: they follow from the geometry.
    None drops below float32: bfloat16 cannot count past 256.

    Args:
        operators: the heads; their tensors are copied.
    Examples:
        >>> Encoding.of("quadratic", [[0.0, -1.0], [0.0, 1.0]], 2.0)
        Encoding(quadratic, heads=2, dimensions=2, alpha=2)
    """

    def __init__(self, operators: Positions):
        super().__init__()
        self.family = type(operators)
        self.names = tuple(field.name for field in fields(operators))  # type: ignore[arg-type]
        self.absent: tuple[str, ...] = ()
        for name in self.names:
            value = getattr(operators, name)
            if isinstance(value, tuple):
                setattr(self, name, nn.ParameterList(map(copied, value)))
            else:
                setattr(self, name, copied(value))

    @classmethod
    def of(cls, family: str, *arguments: Any, **named: Any) -> Self:
        """Heads of the family with this name, made as its method `of` makes them."""
        return cls(FAMILIES[family].of(*arguments, **named))

    @classmethod
    def from_plan(cls, family: str, sizes: Sequence[int], fixed: dict[str, Any], vectors: bool = True) -> Self:
        """The encoding that `family.name`, `sizes` and `fixed` describe, without parameters: a state dict has those.

        Args:
            vectors: whether its heads have vectors of their own.

        Raises:
            KeyError, TypeError: there is no such family, or a value of the plan is of another type.
        """
        encoding = cls(FAMILIES[family].of_sizes(sizes))
        if not vectors:
            encoding.drop_vectors()
        if fixed:
            dtype = {"float32": torch.float32, "float64": torch.float64}[fixed["dtype"]]
            for path, buffer in encoding.learn(False).held_buffers():
                owner, _, name = path.rpartition(".")
                numbers = torch.tensor(fixed[path], dtype=dtype, device="cpu")
                setattr(encoding.get_submodule(owner), name, numbers.reshape(buffer.shape))
            encoding.side_by_side()
        return encoding

    def operators(self) -> Positions:
        """The heads, over the live tensors."""
        return self.family(*[self.tensors(name) for name in self.names])

    def tensors(self, name: str) -> Any:
        """The tensor with this name, or the tuple of them; looked up as `nn.Module` does, only faster."""
        tensor: Tensor | None = self._parameters.get(name)
        tensor = self._buffers.get(name) if tensor is None else tensor
        if tensor is not None:
            return tensor
        computed = getattr(self, name)
        return tuple(computed) if isinstance(computed, nn.ParameterList) else computed

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.operators().heads

    @property
    def dimensions(self) -> int:
        """Number of axes of the grid."""
        return self.operators().dimensions

    @property
    def d_position(self) -> int:
        """Width of r_delta."""
        return self.operators().d_position

    def learn(self, whether: bool = True) -> Self:
        """Makes all positions parameters that train, or buffers outside the state dict."""
        for owner in self.modules():
            for name, value in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
                if owner is self and name in self.absent:
                    continue
                delattr(owner, name)
                if whether:
                    owner.register_parameter(name, copied(value))
                else:
                    owner.register_buffer(name, value.detach(), persistent=False)
        return self if whether else self.side_by_side()

    def side_by_side(self) -> Self:
        """Stores the positions that do not train one behind the other, so that a device compares them as one tensor."""
        places = [
            (owner, name, value)
            for owner in self.modules()
            for name, value in owner.named_buffers(recurse=False)
            if not (owner is self and name in self.absent)
        ]
        values = [value for _, _, value in places]
        if len({(value.dtype, value.device) for value in values}) == 1 and not lie_side_by_side(values):
            parts = torch.cat([value.flatten() for value in values]).split([value.numel() for value in values])
            for (owner, name, value), part in zip(places, parts, strict=True):
                owner.register_buffer(name, part.view(value.shape), persistent=False)
        return self

    def drop_vectors(self) -> None:
        """Makes the v of every head 0, for good: it is no parameter and no state, and only r_delta is left."""
        for name in set(self.names) - self.family.shared - set(self.absent):
            value = self.tensors(name)
            delattr(self, name)
            device = "cpu" if value.is_meta else value.device  # a state dict has no such buffer
            self.register_buffer(name, torch.zeros(value.shape, dtype=value.dtype, device=device), persistent=False)
            self.absent += (name,)

    def held_buffers(self) -> list[tuple[str, Tensor]]:
        """The positions that do not train, by name; not those that are 0 for good."""
        return [(name, value) for name, value in self.named_buffers() if name not in self.absent]

    def fixed(self) -> dict[str, Any]:
        """The positions that do not train, as plain numbers, and their dtype; empty where all train."""
        buffers = dict(self.held_buffers())
        numbers: dict[str, Any] = {name: value.tolist() for name, value in buffers.items()}
        return numbers and {"dtype": str(next(iter(buffers.values())).dtype).removeprefix("torch."), **numbers}

    def resized(self, sides: Sides, how: str = "grow") -> Self:
        """Positions for keys with these `sides`, made from these: learned tables "grow", or are stretched by
        "interpolate"; families that serve grids of any size stay as they are.

        Raises:
            UsageError: sides for other axes (C2A007), or another way (C2A002).
        """
        resized = type(self)(self.operators().resized(sides, how))
        if self.absent:
            resized.drop_vectors()
        return resized

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def no_lower(tensor: Tensor) -> Tensor:
            cast = fn(tensor)
            return cast if cast.dtype not in (torch.float16, torch.bfloat16) else tensor.float().to(cast.device)

        super()._apply(no_lower, recurse)
        return self.side_by_side()

    def extra_repr(self) -> str:
        """The family, its sizes, and the range of alpha."""
        return str(self.operators())


def copied(tensor: Tensor) -> nn.Parameter:
    """A parameter with these numbers."""
    return nn.Parameter(tensor.detach().clone(memory_format=torch.contiguous_format))
