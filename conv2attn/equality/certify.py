"""The certificate of two networks: the conjunction of the verdicts on their layers and on what stands between them."""

import dataclasses
import math
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from numbers import Real
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from conv2attn.arguments import check_network, first_weight, is_size
from conv2attn.equality.bases import a_kind, gradual_underflow
from conv2attn.equality.calls import MODES, call, copied
from conv2attn.equality.comparison import Comparison
from conv2attn.equality.fingerprint.field import Progress
from conv2attn.equality.outputs import is_dense
from conv2attn.equality.results import Certificate, Finding, unsupported
from conv2attn.equality.several_sizes import at_all_sizes
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.layers.attention import ENGINES
from conv2attn.layers.attention.hardness import FORMAT_NAMES
from conv2attn.layers.attention.measured_arithmetic import arithmetics
from conv2attn.layers.attention.probes import float32_precisions, indirect_convolution
from conv2attn.layers.theorem import STOCK
from conv2attn.networks.provenance import assumed_of_both, published_size
from conv2attn.networks.specimens import Specimen, specimen_of, specimen_size, takes_ids, with_others
from conv2attn.theory.bounds import worst
from conv2attn.torch_internals import COMPILED


def certify(
    original: nn.Module,
    network: nn.Module,
    *,
    example_input: Any = None,
    input_size: Sequence[int] | None = None,
    input_range: float = 1.0,
    images: Tensor | None = None,
    labels: Tensor | None = None,
    described: str | None = None,
    seed: int = 0,
    also_sizes: Sequence[Sequence[int]] = (),
    also_modes: Sequence[str] = (),
    circumstances: Sequence[tuple[str, str]] = (),
    progress: Progress | None = None,
) -> Certificate:
    """Whether `network` computes `original`, in the forward pass: layer by layer for every input, and measured on some.

    For each layer: geometry equal as affine forms in the input size, sums of `W_val W_out` at each offset and biases
    equal as real numbers, leaked mass at most the unit roundoff; *proved* where the leak is exactly 0 in the dtype,
    else *bounded*. Between the layers both networks must be the same objects of the same code, under one premise: this
    code does the same at every call, calls its layers and asks nothing else of them. Both also run, and are equal bit
    for bit with the second's layers in both; each returns what its copy does. Any other pair is compared as formulas
    over a finite ring (*identified*, for the size that is run), and then by numbers, which may refute.

    Each network itself is called once, and what the call changed in it is put back; otherwise copies run. Both
    networks, their modes and all generators are as before.

    Args:
        example_input: `images` if it is a tensor, and `input_size` if it is a size.
        input_size: (channels, *sides) of seeded random images, if there are no `images`.
        input_range: those images lie within +-input_range, and so do constructed counterexamples.
        images, labels, described: (batch, channels, *sides), their classes, and what to call them in the report.
        also_sizes: (channels, *sides) of further random images; all is compared at each, and the claim names them.
        also_modes: "gradients", "inference": further modes in which both are called on the inputs that are run.
        circumstances: what else to tell of the two, such as the files that they come from.
        progress: called before each operator that is followed as a formula, with its number from 1, the number of
            operators of that run, and what is done.
    Raises:
        UsageError: an argument is of the wrong kind (C2A006); nothing says what to run the networks on (C2A005), it has
            more than 2^26 numbers or some beyond the dtype (C2A001); the original does not run on it (C2A009); autocast
            is on, or two arguments say what to run on (C2A004); torch is compiling (C2A010).
    Examples:
        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        >>> certificate = conv2attn.certify(conv, conv2attn.convert(conv), input_size=(3, 6, 7))
        >>> certificate.verdict, certificate.strength
        (<Verdict.HOLDS: 'holds'>, <Strength.PROVED: 'proved'>)
    """
    if example_input is not None:
        if images is not None or input_size is not None:
            raise UsageError("C2A004", "example_input stands beside images or input_size", "Pass one of them.")
        images, input_size = (None, example_input) if is_size(example_input) else (example_input, None)
    with uncompiled():
        check_arguments(original, network, images, labels, seed)
        check_modes(also_modes)
        input_range = not_negative(input_range, "input_range")
        if images is None:
            specimen = random_specimen(original, input_size, input_range, seed)
        else:
            specimen = with_others(original, images, f"{len(images)} given images")
        images, described = specimen.main, described or specimen.described
        if torch.is_autocast_enabled(images.device.type):
            sentence = "autocast is on, under which layers compute in another dtype"
            raise UsageError("C2A004", sentence, "Cast the networks.")
        read = assumed_of_both(original, network)
        facts = {**machine(original, images), **dict(circumstances), **({"read as": read} if read else {})}
        facts = dict(sorted(facts.items()))
        if (unread := unreadable(original, network)) is not None:
            return Certificate((), (unread,), circumstances=facts)
        try:
            options = input_range, also_modes, progress
            compared = [Comparison(original, network, specimen, described, labels, *options)]
            for size in also_sizes:
                other = random_specimen(original, size, input_range, seed)
                compared.append(Comparison(original, network, other, other.described, None, *options))
            certificate = at_all_sizes([each.certificate() for each in compared])
        except UnsupportedError as error:
            return Certificate((), (unsupported(error.code, error.found),), circumstances=facts)
    return replace(certificate, circumstances=facts)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Refuses to run while torch is compiling or exporting, and to leave it so.

    Raises:
        UsageError: it is (C2A010).
    """

    def check(when: str) -> None:
        if torch.compiler.is_compiling():
            sentence = (
                f"torch is compiling or exporting {when} this call: whatever networks do now is not what they do later"
            )
            raise UsageError("C2A010", sentence, "Call it outside torch.compile and torch.export, or in a new process.")

    check("around")
    yield
    check("after")


def unreadable(original: nn.Module, network: nn.Module) -> Finding | None:
    """The finding on the first module that runs as compiled code or has no weights yet, if there is one."""
    for side, which in ((original, "first"), (network, "second")):
        for name, module in side.named_modules():
            dynamo = type(module).__module__ == COMPILED
            wrapped = dynamo or isinstance(module, torch.jit.ScriptModule)
            if wrapped or vars(module).get("_compiled_call_impl") is not None:
                sentence = f"{name or 'the network'} of the {which} runs as compiled code, which cannot be read"
                return unsupported("C2A106", f"{sentence}: pass it uncompiled")
            if any(is_lazy(each) for each in module._parameters.values()):
                sentence = f"{name or 'the network'} of the {which} has no weights before its first call"
                return unsupported("C2A103", f"{sentence}: call it once")
    return None


version = cache(metadata.version)  # which reads a file each time
MOST_NUMBERS = 1 << 26  # numbers: 256 MiB in float32, and the layers' outputs are larger yet
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SEED_RANGE = range(-(1 << 63), 1 << 64)  # what a generator of torch takes


def check_arguments(original: Any, network: Any, images: Any, labels: Any, seed: Any) -> None:
    """Checks that networks have numbers, and that seed, images and labels are of the right kind and shape.

    Raises:
        UsageError: one of them is of another kind (C2A001, C2A006, C2A007).
    """
    for which, side in (("original", original), ("network", network)):
        check_network(side, which)
        if any(tensor.is_meta for tensor in (*side.parameters(), *side.buffers())):
            raise UsageError("C2A006", f"{which} is on the meta device, without numbers", "Load its numbers first.")
    if type(seed) is not int or seed not in SEED_RANGE:
        raise UsageError("C2A006", f"seed={seed!r} is not a whole number of 64 bits", "Pass an int.")
    if images is not None:
        check_images(images, takes_ids(original))
        check_batch(original, images)
    if labels is not None and (not is_dense(labels) or labels.dtype not in WHOLE):
        kind = f"a tensor of {labels.dtype}" if isinstance(labels, Tensor) else a_kind(labels)
        raise UsageError("C2A006", f"labels are {kind}, not a tensor of whole numbers", "Pass the classes' numbers.")
    count = 1 if images is None else len(images)
    if labels is not None and labels.shape != (count,):
        sentence = f"labels are {tuple(labels.shape)}, not one for each of {count} images"
        raise UsageError("C2A007", sentence, "Pass a class an image.")


def check_modes(modes: Sequence[str]) -> None:
    """Refuses names that are no modes of gradients.

    Raises:
        UsageError: one is none (C2A002).
    """
    for each in [modes] if isinstance(modes, str) else modes:
        if each not in MODES or isinstance(modes, str):
            known = ", ".join(map(repr, MODES))
            raise UsageError("C2A002", f"also_modes={modes!r} are not modes of gradients", f"Pass some of {known}.")


def not_negative(value: Any, name: str) -> float:
    """A finite real number of at least 0 as a float; a bool is refused.

    Raises:
        UsageError: it is anything else (C2A001).
    """
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
    if not 0 <= number < math.inf:
        sentence = f"{name}={value!r} is not a finite number of at least 0"
        raise UsageError("C2A001", sentence, "Pass a finite number of at least 0.")
    return number


def check_batch(network: nn.Module, images: Tensor) -> None:
    """Refuses one image without a batch, which torch's convolutions take: its channels would count as images.

    Raises:
        UsageError: the first convolution has as many axes as this, and its channels (C2A007).
    """
    first = next((each for each in network.modules() if isinstance(each, STOCK)), None)
    if first is None or images.ndim != first.weight.ndim - 1 or not len(images) == first.in_channels > 1:
        return
    network = copied(network, "first")
    first = next(each for each in network.modules() if isinstance(each, STOCK))
    axes = list[int]()
    hook = first.register_forward_pre_hook(lambda _, arguments: axes.append(arguments[0].ndim))
    with hook, suppress(Exception):  # an error of the network is named where it is run
        call(network, images)
    if images.ndim in axes[:1]:
        sides = "x".join(map(str, images.shape))
        raise UsageError("C2A007", f"images of {sides} are one image without a batch", "Pass images[None].")


def check_images(images: Any, ids: bool) -> None:
    """Refuses images that are no dense tensor of floating-point numbers, or ids of tokens, with a batch.

    Raises:
        UsageError: they are something else (C2A006, C2A007).
    """
    if not is_dense(images) or not images.numel():
        kind = "an empty, sparse, quantised or nested tensor" if isinstance(images, Tensor) else a_kind(images)
        sentence = f"images are {kind}, not a dense tensor with numbers in it"
        raise UsageError("C2A006", sentence, "Pass a tensor (batch, channels, *sides) of floating-point numbers.")
    if not images.is_floating_point() and not (ids and images.dtype in (torch.int32, torch.int64)):
        sentence = f"images are {images.dtype}, and ranges are those of floating-point numbers"
        raise UsageError("C2A006", sentence, "Pass images.float(), scaled as the network takes them.")
    if not images.ndim:
        raise UsageError("C2A007", "images are a single number", "Pass (batch, channels, *sides).")


def random_specimen(original: nn.Module, input_size: Any, input_range: float, seed: int) -> Specimen:
    """One seeded random input of the size given, or of the architecture's own."""
    size = specimen_size(original) if input_size is None else input_size
    if size is None:
        sentence = "nothing says how large an image the networks take"
        raise UsageError("C2A005", sentence, "Pass --input-size, such as 3x224x224, or --inputs.")
    if not isinstance(size, Sequence) or not all(isinstance(side, int) and side > 0 for side in size):
        sentence = f"input_size={size!r} is not positive whole numbers (channels, *sides)"
        raise UsageError("C2A001", sentence, "Pass --input-size as positive whole numbers, such as 3x224x224.")
    sides = "x".join(map(str, size))
    if math.prod(size) > MOST_NUMBERS:
        raise UsageError("C2A001", f"an image {sides} has more than 2^26 numbers", "Pass a smaller --input-size.")
    like = first_weight(original)
    specimen = specimen_of(original, size, input_range, seed, torch.empty(0) if like is None else like)
    if not specimen.main.isfinite().all():
        sentence = f"an input range of {input_range:g} is beyond {specimen.main.dtype}"
        raise UsageError("C2A001", sentence, "Lower --input-range, or compute in a wider --dtype.")
    whose = "" if input_size else published_size(original)
    return dataclasses.replace(specimen, described=specimen.described + whose)


def machine(original: nn.Module, images: Tensor) -> dict[str, str]:
    """The circumstances of a certificate: versions, device, dtypes, kernels."""
    dtypes = sorted({p.dtype for p in original.parameters()}, key=str)
    return {
        "conv2attn": version("conv2attn"),
        "torch": str(torch.__version__),
        "python-flint": version("python-flint"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": device_name(images.device),
        "dtypes": ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes),
        "kernels": kernels(images),
        "arithmetic": arithmetic(dtypes, images.device.type),
    }


def device_name(device: torch.device) -> str:
    """The device, with its model where torch knows it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def kernels(images: Tensor) -> str:
    """The kernels that the convolutions may run by, and the settings that decide."""
    convolutions, matrices = float32_precisions(images.device.type)
    products = f"fp32_precision {convolutions} of convolutions, {matrices} of products"
    if images.device.type == "cuda":
        return f"cuDNN {torch.backends.cudnn.version()}, {products}"
    library = "oneDNN" if torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled else "native"
    indirect = indirect_convolution(images)
    return f"{library}, {torch.backends.cpu.get_cpu_capability()}, {products}" + (f" ({indirect})" if indirect else "")


@gradual_underflow()
def arithmetic(dtypes: Iterable[torch.dtype], device: str) -> str:
    """The measured arithmetic of the engines for these dtypes on the device, which every bound counts."""
    lines = (
        f"{' and '.join(ENGINES['auto'].rounds_as)}: {worst(arithmetics('auto', dtype, device))}; "
        f"sdpa: {worst(arithmetics('sdpa', dtype, device))}"
        for dtype in dtypes
        if dtype in FORMAT_NAMES
    )
    return "; ".join(lines)
