"""A second device on a machine that has none: its tensors compute on the CPU and refuse what a GPU refuses.

    with imitated(), counting() as counts:
        layer.to(DEVICE)(image.to(DEVICE)).sum().backward()
    counts.reads     # {"attention/engines/separable.py:96": 6}, values for which Python waited
    counts.copies    # {"basis/grid.py:141": 1}, numbers sent from the host
    counts.operators, counts.bytes_read, counts.bytes_written    # kernels, and the bytes of their arguments and results

Tensors of two devices cannot be mixed, except for CPU numbers of no dimension. Like MPS, `imitated(float64=False)` has
no float64, and no assertions. Random numbers come from a generator of the device's own, which `torch.manual_seed`
seeds. Autocast casts products as on a GPU. torch.export traces programs there, and they run there; torch.compile does
not, since it compiles nothing while operators are intercepted.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch.fx.experimental import proxy_tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import conv2attn

NAME = "imitated"
PACKAGE = str(Path(conv2attn.__file__).parent)
aten = torch.ops.aten
WAITS = {aten._local_scalar_dense, aten.equal, aten.nonzero, aten.masked_select, aten._unique2, aten.bincount}
"""Operators for whose result, or for its size, the host waits."""
ALLOCATIONS = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
WITHOUT_KERNEL = ALLOCATIONS | {aten.detach, aten._unsafe_view}
MOVES = {aten._to_copy, aten.copy_}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}


@dataclass
class Counts:
    """What the device was asked for: reads and copies by the line of the package, operators by name, and bytes."""

    reads: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def operators(self) -> int:
        return self.sent.total()


COUNTING: list[Counts] = []


@contextmanager
def counting() -> Iterator[Counts]:
    """Counts what is asked of the device inside."""
    counts = Counts()
    COUNTING.append(counts)
    try:
        yield counts
    finally:
        COUNTING.remove(counts)


def line_of_the_package() -> str:
    """The innermost line of conv2attn that runs, or "elsewhere", as in a backward pass."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return f"{frame.f_code.co_filename[len(PACKAGE) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


def count_read() -> None:
    for counts in COUNTING:
        counts.reads[line_of_the_package()] += 1


def count_copy() -> None:
    for counts in COUNTING:
        counts.copies[line_of_the_package()] += 1


class There(torch.Tensor):
    """A tensor that says it is on the imitated device; `inner` has its numbers, on the CPU, where it is loaded again.

    Its module is said to be one of torch's, since tensors of a user's own class are refused and a GPU's are not of one.
    """

    __module__ = "torch._subclasses.imitated"
    __slots__ = ("inner",)  # no attribute that copies of a parameter's attributes would share
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        if inner.dtype == torch.float64 and not Module.float64:
            raise TypeError(f"Cannot convert a tensor to float64 dtype: {DEVICE} does not support float64")
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
            requires_grad=requires_grad,
        )
        self.inner = inner
        return self

    def __repr__(self):
        return f"{self.inner} on {self.device}"

    def tolist(self):
        count_read()
        return self.inner.tolist()

    def numpy(self, *, force=False):
        if not force:
            raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first.")
        count_read()
        return self.inner.numpy(force=True)

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def data_ptr(self):
        return self.inner.data_ptr()

    def untyped_storage(self):
        return self.inner.untyped_storage()

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            copied = There(self.inner.detach().clone(), self.requires_grad)
            vars(copied).update(vars(self))
            memo[id(self)] = copied
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        kind = torch.nn.Parameter if getattr(self, "_is_param", False) else torch.Tensor.requires_grad_
        return kind(self.inner.detach(), self.requires_grad).__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return NotImplemented if of_another_class(types) else run(function, args, kwargs or {})


def of_another_class(types) -> bool:
    """Whether the class of an operand has dispatch of its own, which on a device too is asked first."""
    return any(each is not There and each.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for each in types)


def run(function, args, kwargs):
    """`function` on the tensors' numbers: counted, and refused where a device refuses it."""
    packet, target = function.overloadpacket, kwargs.get("device")
    leaves = [*tensors_in(args), *tensors_in(kwargs.values())]
    there = [leaf for leaf in leaves if isinstance(leaf, There)]
    if not there and (target is None or torch.device(target).type != NAME):
        return function(*args, **kwargs)
    host = [leaf for leaf in leaves if not isinstance(leaf, There) and leaf.ndim]
    lands = landing(packet, args, there, target)
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type != NAME:
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found '{generator.device}'")
    if packet not in MOVES:
        refuse_mixed(function, args, there, host)
    if packet is aten._assert_async and there and not Module.float64:
        raise NotImplementedError(f"{DEVICE} has no {function}")
    if lands and (packet in MOVES or there) and (host or (packet is aten._to_copy and not there)):
        count_copy()
    if waits(packet, args, there, lands, target):
        count_read()
    inner_args = each_tensor(inner_of, args)
    inner_kwargs = {name: each_tensor(inner_of, value) for name, value in kwargs.items()}
    if lands and target is not None:
        inner_kwargs["device"] = torch.device("cpu")
    with drawn_there() if lands and torch.Tag.nondeterministic_seeded in function.tags else nullcontext():
        result = FUSED.get(packet, function)(*inner_args, **inner_kwargs)
    if not lands:
        return result
    for tensor in there:
        if (tensor.shape, tensor.stride()) != (tensor.inner.shape, tensor.inner.stride()):
            raise NotImplementedError(f"the imitated device has no {function}: it changes a shape in place")
    wrappers = {id(tensor.inner): tensor for tensor in there}
    result = each_tensor(lambda tensor: wrapped(tensor, wrappers), result)
    if packet not in WITHOUT_KERNEL and not function.is_view:
        written = [x for x in tensors_in([result]) if isinstance(x, There)] if COUNTING else []
        for counts in COUNTING:
            counts.sent[str(packet).removeprefix("aten.")] += 1
            counts.bytes_read += sum(map(bytes_of, there))
            counts.bytes_written += sum(map(bytes_of, written))
    return result


def tensors_in(arguments):
    """The tensors among the arguments of an operator, or in lists among them: all that an operator takes."""
    for value in arguments:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def each_tensor(function, value):
    """`value` with `function` of each tensor in it."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(each_tensor(function, x) for x in value)
    return value


def lstm_cell(from_input, from_hidden, cell, *biases):
    """One step of an LSTM, for which torch asks a device for one kernel; the CPU has none."""
    summed = sum((bias for bias in biases if bias is not None), from_input + from_hidden)
    enter, keep, new, out = summed.chunk(4, 1)
    gates = [enter.sigmoid(), keep.sigmoid(), new.tanh(), out.sigmoid()]
    enter, keep, new, out = gates
    after = keep * cell + enter * new
    return out * after.tanh(), after, torch.cat(gates, 1)


FUSED = {aten._thnn_fused_lstm_cell: lstm_cell}
"""Kernels that torch has on devices alone."""


def landing(packet, args, there, target):
    """Whether the result is on the device."""
    if target is not None:
        return torch.device(target).type == NAME
    return isinstance(args[0], There) if packet is aten.copy_ else bool(there)


def refuse_mixed(function, args, there, host):
    """Raises what torch raises where tensors of two devices meet."""
    if function.overloadpacket in INDEXING and isinstance(args[0], There):
        host = [x for x in tensors_in(args[2:]) if not isinstance(x, There) and x.ndim]
    if there and host:
        devices = f"{host[0].device} and {DEVICE}"
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {devices}! ({function})"
        )


def waits(packet, args, there, lands, target):
    """Whether the host waits for numbers of the device."""
    if not there:
        return False
    if packet in MOVES:
        return not lands and (target is None or torch.device(target).type == "cpu")
    masks = packet in INDEXING and any(x.dtype in (torch.bool, torch.uint8) for x in tensors_in(args[1]))
    return masks or packet in WAITS


def wrapped(tensor, wrappers):
    return wrappers[id(tensor)] if id(tensor) in wrappers else There(tensor)


def inner_of(value):
    return value.inner if isinstance(value, There) else value


def bytes_of(tensor):
    """The bytes of memory that a tensor covers: an expanded axis is one entry."""
    sizes = (side for side, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return int(np.prod([*sizes, tensor.element_size()])) if tensor.numel() else 0


class Module:
    """`torch.imitated`: the interface of a device's module, with one random generator."""

    float64 = True
    generator = torch.Generator()

    def is_initialized(self):
        return True

    def is_available(self):
        return True

    def current_device(self):
        return 0

    def device_count(self):
        return 1

    def synchronize(self, device=None):
        count_read()

    def _is_in_bad_fork(self):
        return False

    def manual_seed(self, seed):
        self.generator.manual_seed(seed)

    def manual_seed_all(self, seed):
        self.generator.manual_seed(seed)

    def get_rng_state(self, device=None):
        return self.generator.get_state()

    def set_rng_state(self, state, device=None):
        self.generator.set_state(state)

    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]


@contextmanager
def drawn_there():
    """The device's own generator in place of the CPU's."""
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(Module.generator.get_state())
    try:
        yield
    finally:
        Module.generator.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(before)


class Dispatched(TorchDispatchMode):
    """Operators without a tensor of the device, such as `torch.zeros(3, device=DEVICE)`.

    While a program is traced, its operators compute shapes alone, as those of any device do.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        arguments = (args, kwargs or {})
        if (tracing := torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)) is not None:
            args, kwargs = tree_map_only(There, partial(tracing.from_tensor, static_shapes=True), arguments)
            return function(*args, **kwargs)
        return NotImplemented if of_another_class(types) else run(function, *arguments)


def has_float64(device: torch.device) -> bool:
    """Whether `device` computes in float64: MPS does not, and neither does one imitated without."""
    return device.type != "mps" and (device.type != NAME or Module.float64)


@contextmanager
def imitated(float64: bool = True) -> Iterator[None]:
    """The device exists inside; modules that move to it get new parameters, as their type is another."""
    before, Module.float64 = torch.__future__.get_overwrite_module_params_on_conversion(), float64
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    traced = mock.patch.object(proxy_tensor, "HANDLED_TYPES", (*proxy_tensor.HANDLED_TYPES, There))
    try:
        with Dispatched(), mock.patch.object(torch.accelerator, "synchronize", torch.imitated.synchronize), traced:
            yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
        Module.float64 = True


def cast(operator):
    """The kernel of a product under autocast: floats are cast to autocast's dtype first."""

    def kernel(*args, **kwargs):
        dtype = torch.get_autocast_dtype(NAME)
        args = [x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args]
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
            return operator(*args, **kwargs)

    return kernel


def made_below_dispatch(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    """The memory of `torch.tensor(..., device=DEVICE)`, which torch makes below `__torch_dispatch__`."""
    return There(torch.empty_strided(size, stride, dtype=dtype))


def copied_below_dispatch(there, numbers, non_blocking=False):
    """What `torch.tensor` writes there."""
    count_copy()
    there.inner.copy_(numbers)
    return there


backend_registration._setup_privateuseone_for_python_backend(NAME, Module())
DEVICE = torch.device(NAME, 0)
KERNELS = torch.library.Library("aten", "IMPL")
UNCAST, CAST = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
UNCAST.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
KERNELS.impl("empty_strided", made_below_dispatch, "PrivateUse1")
KERNELS.impl("copy_", copied_below_dispatch, "PrivateUse1")
for name in ("conv1d", "conv2d", "conv3d", "linear", "matmul", "mm", "bmm", "addmm", "baddbmm"):
    CAST.impl(name, cast(getattr(aten, name).default), "AutocastPrivateUse1")
for name, overload in {"conv_transpose1d": "default", "conv_transpose2d": "input", "conv_transpose3d": "input"}.items():
    operator = getattr(getattr(aten, name), overload)
    CAST.impl(operator, cast(operator), "AutocastPrivateUse1")
