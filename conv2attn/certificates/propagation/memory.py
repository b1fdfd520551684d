"""What is known of each tensor that a running network holds, as long as nothing changes it unseen."""

from typing import final

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from conv2attn.certificates.propagation.carried import Carried, Stop


@final
class Memory:
    """The bounds of tensors that come from the image, and None for others, which both networks have alike."""

    def __init__(self) -> None:
        self.noted = WeakTensorKeyDictionary()

    def note(self, tensor: Tensor, bounds: Carried | None) -> None:
        """Keeps what is known of a tensor as it is now."""
        self.noted[tensor] = bounds, state_of(tensor)

    def of(self, tensor: Tensor) -> Carried | None:
        """What is known of a tensor.

        Raises:
            Stop: nothing is, or it was changed since by what is not a function of torch, such as compiled code.
        """
        if tensor not in self.noted:
            raise Stop("a tensor of unknown origin")
        bounds, state = self.noted[tensor]
        if state != state_of(tensor):
            raise Stop("a tensor that was changed unseen")
        found: Carried | None = bounds
        return found

    def forget_views(self, changed: list[Tensor], value: object) -> None:
        """Whatever shares memory with tensors that were changed in place is known no longer; they are, if returned."""
        for tensor in changed:
            if tensor is not value:
                raise Stop("a change in place of a part of a tensor")
            for other in self.sharing(tensor):
                if other is not tensor:
                    del self.noted[other]

    def see_changes(self, changed: list[Tensor]) -> None:
        """Tensors that do not come from the image were changed in place by others of that kind, and so their views."""
        for tensor in changed:
            for other in self.sharing(tensor):
                if self.noted[other][0] is None:
                    self.note(other, None)

    def sharing(self, tensor: Tensor) -> list[Tensor]:
        """The known tensors that share memory with one."""
        place = tensor.untyped_storage().data_ptr()
        return [other for other in list(self.noted.keys()) if other.untyped_storage().data_ptr() == place]


def state_of(tensor: Tensor) -> tuple[object, ...]:
    """What differs after a change in place, or when another tensor's memory was put under this one."""
    return tensor._version, tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
