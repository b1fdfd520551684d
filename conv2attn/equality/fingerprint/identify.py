"""Are two networks the same formula of the input? One call of each over a product of secret prime fields."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equality.fingerprint.chance import FEWEST, MOST, log2_chance, primes_needed
from conv2attn.equality.fingerprint.field import Field
from conv2attn.equality.fingerprint.plain_calls import after_another, both_ways, far_apart, fresh_copy
from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.run import Run
from conv2attn.equality.fingerprint.state import alike, state_of, taken_apart
from conv2attn.equality.fingerprint.trace import Log, spoken
from conv2attn.networks.conversion.replacement import copy_network
from conv2attn.torch_internals import DisableTorchFunctionSubclass

STANCE = threading.RLock()
"""Held while it is changed how torch compiles, which is one setting for the process."""
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
Network = Callable[[Tensor], Any]
Progress = Callable[[str], None]


@final
@dataclass(frozen=True)
class Identification:
    """Whether two networks are one formula, for all inputs of one size.

    Args:
        equal: True: the same formula in real arithmetic, but for the chance; False: nothing is said, the formulas were
            told apart and may still be one function; None: undecided.
        reason: why it is undecided, with the operator and the line of the network's code.
        log2_chance: of a wrong True, at most 2 to this; None where it is not True.
        oracle_values, degree, height: what the chance follows from.
        primes, bits: how many secret primes of how many bits.
        size: of the input, with its batch.
        mode: of gradients and training, as the networks were run.
    """

    equal: bool | None
    size: tuple[int, ...]
    reason: str = ""
    log2_chance: float | None = None
    oracle_values: int = 0
    degree: int = 0
    height: float = 0.0
    primes: int = 0
    bits: int = 0
    mode: str = "without gradients"


def identify(
    first: Network,
    second: Network,
    images: Tensor,
    *,
    primes: int | None = None,
    bits: int = 31,
    progress: Progress | None = None,
) -> Identification:
    """Whether both networks are the same formula of images of this size, dtype and layout: polynomial identity testing.

    Both run once over a product of secret prime fields, on tensors without memory: float arithmetic is exact modulo
    each prime, other pointwise functions are random oracles of their names and arguments, and what is not known to be
    sound is undecided. Equal outputs mean equal formulas in real arithmetic, constants as the dtype rounds them, for
    all finite inputs, but for the chance. The premise: the network's own code does the same at every call.

    Modules are copied and never changed. Functions are called as they are.

    Args:
        images: float tensor of the size to ask about; its numbers do not matter for the answer, only for the plain
            calls that watch over it.
        primes: how many; by default one first, which tells most unequal pairs apart and counts how many more it takes.
        bits: of each prime, 7 to 31.
        progress: told what is done next.
    Examples:
        >>> import torch
        >>> from conv2attn.equality.fingerprint import identify
        >>> found = identify(torch.square, lambda x: x * x, torch.rand(1, 3))
        >>> found.equal, found.log2_chance < -40
        (True, True)

    Source: Schwartz 1980, Zippel 1979; Freivalds 1979; Wu et al., Mirage, OSDI 2025, Sec. 5.
    """
    size, say = tuple(images.shape), progress or (lambda words: None)
    try:
        check_images(images)
        ours, theirs = own_copy(first), own_copy(second)
        watched = watch(ours, theirs, images)
        field = Field(primes or 1, bits)
        say("formulas modulo one prime" if primes is None else f"formulas modulo {primes} primes")
        outputs = [fingerprint(each, images, field) for each in (ours, theirs)]
        same = same_outputs(*outputs)
        if same and primes is None:
            needed = primes_needed(field)
            if needed is None:
                degree = f"degree {field.degree:.3g} and height {field.height:.3g}"
                raise Undecided(f"more than {MOST} primes would be needed for a formula of {degree}")
            field = Field(max(needed, FEWEST), bits)
            say(f"formulas modulo {field.count} primes")
            same = same_outputs(*(fingerprint(each, images, field) for each in (ours, theirs)))
        if not alike(watched, both_ways(ours, theirs, images)):
            raise Undecided("a call of one network changes what the other computes")
        if same and far_apart(ours, theirs, images):
            raise Undecided("numbers contradict equal formulas: please report this")
    except Undecided as error:
        return Identification(None, size, str(error))
    except (Exception, SystemExit) as error:
        return Identification(None, size, f"{type(error).__name__}: {str(error)[:200]}")
    facts: dict[str, Any] = {"oracle_values": field.oracle_values, "degree": field.degree, "height": field.height}
    chance = log2_chance(field, field.count) if same else None
    return Identification(same, size, "", chance, **facts, primes=field.count, bits=bits, mode=mode_of(first, second))


def mode_of(*networks: Network) -> str:
    """The mode in which networks were run, in words."""
    training = any(isinstance(each, nn.Module) and each.training for each in networks)
    return f"without gradients, in {'training' if training else 'evaluation'} mode"


def own_copy(network: Network) -> Network:
    """A copy of a module, which alone is called; a function as it is.

    Raises:
        Undecided: the module cannot be copied.
    """
    if not isinstance(network, nn.Module):
        return network
    try:
        return copy_network(network)
    except Exception as error:
        raise Undecided(f"a network that cannot be copied: {error}") from error


def check_images(images: Tensor) -> None:
    """Refuses images that are not finite floats on the CPU.

    Raises:
        Undecided: they are not.
    """
    dense = type(images) is Tensor and images.layout == torch.strided and images.device.type == "cpu"
    if not dense or images.dtype not in FLOATS or not bool(images.isfinite().all()):
        raise Undecided("images that are not finite floats on the CPU")


def watch(first: Network, second: Network, images: Tensor) -> list[Any]:
    """What both return at plain calls.

    Raises:
        Undecided: what one computes depends on its first call, or changes.
    """
    start = [(network, state_of(network), fresh_copy(network)) for network in (first, second)]
    results = both_ways(first, second, images)
    for (network, before, unused), result in zip(start, results, strict=True):
        if alike(before, state_of(network)):
            continue
        if unused is None or not alike(result, after_another(unused, images)):
            raise Undecided("what a network computes depends on its first call")
    return results


@contextmanager
def eagerly() -> Iterator[None]:
    """While active, code that compiles itself, as torch.cond does, runs uncompiled.

    An error within compiled code, such as that of an operator without a rule, keeps it from running ever after.
    """
    with STANCE, torch.compiler.set_stance("force_eager"):
        yield


def fingerprint(network: Network, images: Tensor, field: Field) -> tuple[Any, list[Residues]]:
    """The structure of the outputs, and the residues of the outputs and of what became of the input.

    Raises:
        Undecided: an operator has no sound rule, or code does something else than with real numbers.
    """
    before = state_of(network)
    bare: list[Tensor] = []
    noted: list[Tensor] = []
    leaves: list[Tensor] = []
    seen, log = images.clone(), Log()
    log.trace.make(seen)
    try:
        with torch.no_grad():
            form = taken_apart(network(images.clone()), bare)
        with torch.no_grad(), eagerly(), log:
            again = taken_apart(network(seen), noted)
        if log.failures:
            raise Undecided(log.failures[0])
        wires = [log.trace.reference(each) for each in noted]
    except Undecided:
        raise
    except Exception as error:
        raise Undecided(f"the network raises {type(error).__name__}: {str(error)[:80]}") from error
    if again != form or not alike([each.detach() for each in bare], [each.detach() for each in noted]):
        raise Undecided("two plain calls are not the same")
    single = torch.finfo(images.dtype).eps <= torch.finfo(torch.float32).eps
    run = Run(field, images.dtype if single else torch.float32, log.trace.log)
    like = torch.empty_strided(images.size(), images.stride(), dtype=images.dtype, device="meta")
    given = run.numbers.fresh(like, Residues(field.input(images.shape)))
    run.trace.make(given)
    try:
        with torch.no_grad(), eagerly(), run:
            out = network(given)
    except Exception as error:
        words = f"the network raises {type(error).__name__}: {str(error)[:80]}"
        raise Undecided(run.failures[0] if run.failures else words) from error
    if run.failures:
        raise Undecided(run.failures[0])
    if len(run.trace.log) != len(run.plan):
        missing = spoken(run.plan[len(run.trace.log)][0])
        raise Undecided(f"the network stops before {missing}, which it calls in a plain run")
    if not alike(before, state_of(network)):
        raise Undecided("the network changes itself")
    if taken_apart(out, leaves) != form or forms(leaves) != forms(bare):
        raise Undecided("outputs of another form than with real numbers")
    values = []
    with DisableTorchFunctionSubclass():
        if [run.trace.reference(each) for each in leaves] != wires:
            raise Undecided("other outputs than with real numbers")
        for each, real in zip((*leaves, given), (*noted, seen), strict=True):
            if run.numbers.depends(each):
                values.append(run.numbers.residues(each))  # type: ignore[arg-type]
            elif not alike(run.numbers.real(each).detach(), real.detach()):
                raise Undecided("constants that are not the same with real numbers")
            else:
                values.append(field.encode(run.numbers.real(each)))
    field.note(*values)
    field.oracle_values += sum(each.values[0].numel() for each in values)
    return (form, forms(leaves)), values


def forms(tensors: list[Tensor]) -> list[Any]:
    """Dtypes and shapes."""
    return [(each.dtype, tuple(each.shape)) for each in tensors]


def same_outputs(first: tuple[Any, list[Residues]], second: tuple[Any, list[Residues]]) -> bool:
    """Whether structure and residues agree.

    Raises:
        Undecided: they do, and some output is not finite.
    """
    if first[0] != second[0]:
        return False
    for a, b in zip(first[1], second[1], strict=True):
        if a.shape != b.shape or (a.mark is None) != (b.mark is None):
            return False
        if a.mark is not None and b.mark is not None and not torch.equal(a.mark, b.mark):
            return False
        if not torch.equal(a.values, b.values):
            return False
    if any(each.mark is not None for each in first[1]):
        raise Undecided("outputs that are not finite")
    return True
