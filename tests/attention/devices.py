"""A mode that refuses, on a machine without a GPU, the mixes of devices that a GPU refuses."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OneDevice(TorchDispatchMode):
    """Refuses operations on tensors of several devices, as a GPU does; CPU scalars apart."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        tensors = [t for t in tree_leaves((args, kwargs or {})) if isinstance(t, torch.Tensor) and t.dim()]
        devices = {t.device for t in tensors}
        if len(devices) > 1 and "copy" not in str(function):
            raise RuntimeError(f"{function} mixes {sorted(map(str, devices))}")
        return function(*args, **(kwargs or {}))
