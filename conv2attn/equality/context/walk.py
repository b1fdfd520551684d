"""One run of a graph: opaque nodes are computed by the layers that one passes, and what one asks is seen on the way.

The plain call of a network, beside which a graph must stand: the operators that both dispatch, and the bits that both
return.
"""

import copy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only, tree_unflatten

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.equality.context.graph import OperatorGraph
from conv2attn.equality.context.opaque import OPAQUE, Layer, tap_weights
from conv2attn.models.conversion.redirection import AttendingCalls
from conv2attn.models.conversion.replacement import reparametrisations

Compute = Callable[..., Tensor]
PACKAGE, TORCH = Path(__file__).parents[2], Path(torch.__file__).parent
NETWORKS = PACKAGE / "models" / "zoo"
UNCOMPILED = TORCH / "_dynamo" / "eval_frame.py"  # through which torch calls what is never compiled
COMPILERS = ("_dynamo", "_inductor", "_export", "export", "_functorch", "_subclasses", "fx/experimental")
OURS_THAT_CALL = (Path(__file__), PACKAGE / "models" / "conversion" / "redirection.py")
SILENT = ("clone", "lift_fresh_copy", "_unsafe_view", "_assert_async", "_assert_tensor_metadata")
READING = {Tensor.numpy, Tensor.__array__, Tensor.__dlpack__, Tensor.data_ptr}
LAYERS_OF_OURS = MultiHeadSelfAttention.forward.__code__


class Walk(fx.Interpreter):
    """One run of a graph. `compute` gives what an opaque node returns; `kept` are the values of the nodes `wanted`."""

    def __init__(self, graph: OperatorGraph, compute: Compute, wanted: Sequence[fx.Node] = ()):
        super().__init__(graph.module)
        self.source, self.compute, self.wanted, self.extra_traceback = graph, compute, set(wanted), False
        self.kept: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Computes one node; an opaque one by its layer."""
        if n.target is OPAQUE:
            (image, weight, bias, number, *sizes), _ = self.fetch_args_kwargs_from_env(n)
            value: Any = self.compute(self.source.layers[number], image, weight, bias, *sizes[4:])
        else:
            value = super().run_node(n)
        if n in self.wanted:
            self.kept[n] = value
        return value

    def numbers(self, tensor: Tensor) -> Tensor:
        """A constant as this walk uses it."""
        return tensor

    def on(self, images: Tensor, recorder: "Recorder | None" = None, *, gradients: bool = False) -> Any:
        """The outputs of the graph for `images`, in the structure of the network."""
        constants = {name: self.numbers(tensor) for name, (tensor, _) in self.source.constants.items()}
        if self.source.changes:
            constants = copy.deepcopy(constants)
        places = [node.name for node in self.source.module.graph.nodes if node.op == "placeholder"]
        inputs = [images.clone() if name == self.source.image else constants.get(name) for name in places]
        with seeded(), torch.set_grad_enabled(gradients), plainly(), recorder or nullcontext():
            values = self.run(*inputs)
        return tree_map_only(Tensor, Tensor.detach, tree_unflatten(values, self.source.spec))


def own(layer: Layer, image: Tensor, weight: Any = None, bias: Any = None, sides: Any = None) -> Tensor:
    """The output of a layer by its own module, without its hooks, or by the function as it was called."""
    return computed(layer, layer.module, image, weight, bias, sides)


def softened_output(layer: Layer, image: Tensor, weight: Any = None, bias: Any = None, sides: Any = None) -> Tensor:
    """The output of a layer whose quadratic heads are evaluated as softmaxes, not compiled back to convolutions."""
    return computed(layer, layer.softened, image, weight, bias, sides)


def computed(layer: Layer, module: nn.Module | None, image: Tensor, weight: Any, bias: Any, sides: Any) -> Tensor:
    """The output of a layer that is computed by `module`."""
    if layer.function is None:
        assert module is not None
        for hook in reparametrisations(module).values():
            hook(module, ())
        result: Tensor = type(module).forward(module, image, *([] if sides is None else [sides]))
        return result
    if weight is None:
        assert layer.tensors is not None
        weight, bias = layer.tensors
    if module is None:
        return layer.function(layer.padded(image), weight, bias, **layer.options)
    with _disable_current_modes():  # which a plain call does before the attention, and its graph has
        weights = tap_weights(layer.convolution(weight, bias))
    result = type(module).forward(module, layer.padded(image), weights=weights)
    return result


@contextmanager
def seeded() -> Iterator[None]:
    """While active, random numbers are the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class NumbersRead(TorchFunctionMode):
    """Notes in `recorder` where code reads the numbers of a tensor without torch, which no operator shows."""

    def __init__(self, recorder: "Recorder"):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`."""
        if func in READING:
            self.recorder.note(f"Tensor.{func.__name__}", (), {})
        return func(*args, **(kwargs or {}))


class Recorder(TorchDispatchMode):
    """Notes each operator that computes numbers, with its plain arguments; attention of this package as one."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.reads = NumbersRead(self)
        self.operators: list[str] = []
        self.lines: list[str] = []
        self.attention = None

    def __enter__(self) -> Any:
        self.reads.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.reads.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`; control flow of torch is noted by its name, which its graph has too."""
        if isinstance(func, HigherOrderOperator):
            self.operators.append(str(func))
            return func(*args, **(kwargs or {}))
        schema = func._schema
        views = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
        library, _, operator = schema.name.partition("::")
        if not views and operator not in SILENT and library != "profiler":
            self.note(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def note(self, func: Any, args: Any, kwargs: Any) -> None:
        """Notes one operator."""
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code is not LAYERS_OF_OURS:
            frame = frame.f_back
        before, self.attention = self.attention, frame
        if frame is None:
            plain = tree_map_only(Tensor, lambda tensor: "", (args, kwargs))
            self.operators.append(f"{func} {plain}")
        elif frame is not before:
            self.operators.append("attention")


@contextmanager
def undisturbed(network: nn.Module) -> Iterator[None]:
    """Afterwards `network` is as it was: attributes of its modules, lists and mappings among them, and buffers."""
    modules = [each for each in network.modules() if not isinstance(each, MultiHeadSelfAttention | AttendingCalls)]
    attributes = [(vars(module), dict(vars(module))) for module in modules]
    values = (value for _, before in attributes for value in before.values())
    containers = [(value, copy.copy(value)) for value in values if type(value) in (dict, list, set)]
    with unchanged_buffers(network):
        try:
            yield
        finally:
            for now, before in (*attributes, *containers):
                pairs = zip(items_of(now), items_of(before), strict=True)
                if len(now) != len(before) or any(a is not b for a, b in pairs):
                    now.clear()
                    now.extend(before) if isinstance(now, list) else now.update(before)


@contextmanager
def unchanged_buffers(network: nn.Module) -> Iterator[None]:
    """Afterwards the buffers of `network` have the numbers that they had."""
    buffers = [(each, each.detach().clone()) for each in network.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def items_of(container: Any) -> Iterator[Any]:
    """The items of a container; of a mapping keys and values in turn."""
    return chain.from_iterable(container.items()) if isinstance(container, dict) else iter(container)


@contextmanager
def plainly() -> Iterator[None]:
    """While active, torch's attention layers take the way that graphs have."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def call(
    network: nn.Module, images: Tensor, recorder: Recorder | None = None, *, gradients: bool = False, calls: int = 1
) -> Any:
    """The outputs of `network` for `images`, of the last of some calls on the same buffers; it stays as it was."""
    with undisturbed(network), torch.set_grad_enabled(gradients), plainly():
        for _ in range(calls - 1):
            with unchanged_buffers(network), seeded():
                network(images.clone())
        with seeded(), recorder or nullcontext():
            output = network(images.clone())
    return tree_map_only(Tensor, Tensor.detach, output)


def without_memory(failure: BaseException) -> bool:
    """Whether there was not enough memory, which says nothing about a network."""
    return isinstance(failure, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(failure)


def reason(failure: BaseException) -> str:
    """The first line of what an error says, or its kind if it says nothing."""
    return str(failure).partition("\n")[0] or type(failure).__name__


def blame(failure: BaseException) -> str:
    """The code that raised an error, in words; empty if it is a network's own, which alone says something about it.

    Torch's layers and functions, called with what does not fit them, are a network's own; the error of a layer of this
    package, or of torch's compilers, is not.
    """
    frames = traceback.extract_tb(failure.__traceback__)
    files = [path for path in (Path(frame.filename) for frame in frames) if path != UNCOMPILED]
    compilers = [TORCH / each for each in COMPILERS]
    if any(file.is_relative_to(each) for file in files for each in compilers):
        return "torch's compiler"
    innermost = next((file for file in reversed(files) if not file.is_relative_to(TORCH)), None)
    ours = innermost is not None and innermost.is_relative_to(PACKAGE) and not innermost.is_relative_to(NETWORKS)
    return "conv2attn" if ours and innermost not in OURS_THAT_CALL else ""
