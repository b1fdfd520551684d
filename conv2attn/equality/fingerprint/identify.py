"""Decides whether two networks are the same formula of the input, by one call of each over secret prime fields."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equality.fingerprint.chance import FEWEST, MOST, WANTED, log2_chance, primes_needed
from conv2attn.equality.fingerprint.evaluation import fingerprint, plain_run, same_outputs
from conv2attn.equality.fingerprint.field import Field, Progress
from conv2attn.equality.fingerprint.repeated_calls import CLOSE, Network, after_another, called, far, leaves_of
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.state import alike, network_state
from conv2attn.networks.copies import copy_network, in_training

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FIRST_BITS = 20
"""Bits of the first prime, which only separates unequal pairs and counts: sums of up to 2^15 products need one limb."""
LARGE = 10**6
"""Above this number of stored numbers, arithmetic dominates the time of a run, not the overhead of operators."""


@final
@dataclass(frozen=True)
class Identification:
    """Whether two networks are one formula, for all inputs of one size.

    Args:
        equal: True: the same formula in real arithmetic, up to the error probability. False: the formulas differ, which
            proves nothing, since they may still be one function. None: undecided.
        reason: why it is undecided, with the operator and the line of the network's code.
        log2_chance: log2 of the error probability of True; None otherwise.
        oracle_values, degree, height: the numbers from which that probability follows.
        primes, bits: number of secret primes, and their bits.
        size: size of the input, with its batch.
        mode: mode of gradients and training in which the networks ran.
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
    """Whether both networks are one formula of images of this size, dtype and layout: polynomial identity testing.

    Both run once over a product of secret prime fields, on tensors without memory: float arithmetic is exact modulo
    each prime, other pointwise functions are random oracles of their names and arguments, and any unsound step leaves
    the answer undecided. Equal outputs mean equal formulas in real arithmetic, constants as the dtype rounds them, for
    all finite inputs, up to the error probability. The premise: the network's own code does the same at every call.

    Modules are copied and never changed. Functions are called directly.

    Args:
        images: float tensor of the size in question; its numbers do not affect the answer, only the plain calls that
            accompany it.
        primes: number of primes; by default as many as the error probability requires. If the numbers differ or the
            network is large, one prime of fewer bits comes first, which separates most unequal pairs.
        bits: of each prime, 7 to 31.
        progress: called before each operator of a run over a field, with its number from 1, the number of operators,
            and the current step.
    Examples:
        >>> import torch
        >>> from conv2attn.equality.fingerprint import identify
        >>> found = identify(torch.square, lambda x: x * x, torch.rand(1, 3))
        >>> found.equal, found.log2_chance < -40
        (True, True)

    Source: Schwartz 1980, Zippel 1979; Freivalds 1979; Wu et al., Mirage, OSDI 2025, Sec. 5.
    """
    size = tuple(images.shape)
    try:
        check_images(images)
        ours, theirs = own_copy(first), own_copy(second)
        watched = watch((ours, theirs), (first, second), images)
        plain = [plain_run(each, images, result) for each, result in zip((ours, theirs), watched, strict=True)]
        pairs = list(zip((ours, theirs), plain, strict=True))

        def agree(field: Field) -> bool:
            # Cached results of one run serve the other if none of its degrees and heights is larger. So the network
            # with the larger ones runs first the next time.
            results = [fingerprint(network, images, field, call) for network, call in pairs]
            heights = [[(each.degree, each.size_bits + each.halvings) for each in values] for _, values in results]
            if heights[1] > heights[0]:
                pairs.reverse()
            field.forget_answers()  # reference cycles keep the field in memory for a while
            return same_outputs(*results)

        # Networks whose numbers agree are usually one formula, so a first run with a small prime is usually wasted. In
        # a large network that run takes less than half the time of all primes. It pays there, since a folded network is
        # another formula and needs no further run.
        large = max(map(stored_numbers, (ours, theirs))) > LARGE
        alone = not primes and (large or far(watched[0][1], watched[1][1], CLOSE))
        field = Field(1, min(bits, FIRST_BITS), progress) if alone else Field(primes or FEWEST, bits, progress)
        # Networks with bitwise equal numbers almost never differ, so a count without primes is enough. Without residues
        # less is known about numbers, so the count may be undecided although the formulas are not.
        with suppress(Undecided):
            if alone and alike(watched[0][1], watched[1][1]) and agree(without := Field(0, bits)):
                field = sufficient(without, bits, progress) or field
        same = agree(field)
        if same and primes is None and log2_chance(field, field.count) > WANTED:
            enough = sufficient(field, bits, progress)
            if enough is None:
                degree = f"degree {field.degree:.3g} and height {field.height:.3g}"
                raise Undecided(f"more than {MOST} primes would be needed for a formula of {degree}")
            field = enough
            same = agree(field)
        # Both were called in turn, twice before their runs: now each is called after the runs of both.
        if not alike(watched, [called(each, images) for each in (ours, theirs)]):
            raise Undecided("a call of one network changes what the other computes")
        # Code that bypasses the run may read the size of its input, so both are called on larger images too.
        if same and (
            far(watched[0][1], watched[1][1]) or far(leaves_of(ours, images * 100), leaves_of(theirs, images * 100))
        ):
            raise Undecided("numbers contradict equal formulas: please report this")
    except Undecided as error:
        return Identification(None, size, str(error))
    except (Exception, SystemExit) as error:
        return Identification(None, size, f"{type(error).__name__}: {str(error)[:200]}")
    counted = {each: getattr(field, each) for each in ("oracle_values", "degree", "height", "bits")}
    chance = log2_chance(field, field.count) if same else None
    mode = mode_in_words(first, second) + field.masked * ", with scores of attention within +-1e29"
    return Identification(same, size, "", chance, primes=field.count, mode=mode, **counted)


def sufficient(counted: Field, bits: int, progress: Progress | None) -> Field | None:
    """The field with the fewest primes for these counts; None if `MOST` are not enough."""
    needed = primes_needed(counted, bits)
    if needed is None:
        return None
    # One bit less makes products four times smaller, so four times as many are summed at once.
    return Field(needed, bits - (primes_needed(counted, bits - 1) == needed), progress)


def mode_in_words(*networks: Network) -> str:
    """The mode in which the networks ran, in words."""
    training = any(isinstance(each, nn.Module) and in_training(each) for each in networks)
    return f"without gradients, in {'training' if training else 'evaluation'} mode"


def own_copy(network: Network) -> Network:
    """A copy of a module, so that only the copy is called; a function itself.

    Raises:
        Undecided: the module cannot be copied.
    """
    if not isinstance(network, nn.Module):
        return network
    try:
        return copy_network(network)
    except Exception as error:
        raise Undecided(f"a network that cannot be copied: {error}") from error


def stored_numbers(network: Network) -> int:
    """How many numbers a network stores; a function counts as having none."""
    return sum(each.numel() for each in network.parameters()) if isinstance(network, nn.Module) else 0


def check_images(images: Tensor) -> None:
    """Refuses images that are not finite floats on the CPU.

    Raises:
        Undecided: they are not.
    """
    dense = type(images) is Tensor and images.layout == torch.strided and images.device.type == "cpu"
    if not dense or images.dtype not in FLOATS or not bool(images.isfinite().all()):
        raise Undecided("images that are not finite floats on the CPU")


def watch(copies: tuple[Network, Network], networks: tuple[Network, Network], images: Tensor) -> list[Any]:
    """The results of plain calls of both copies; the networks themselves are not called.

    Raises:
        Undecided: a network's result depends on its first call, or changes.
    """
    start = [network_state(each) for each in copies]
    results = [called(each, images) for each in copies]
    for copy, network, before, result in zip(copies, networks, start, results, strict=True):
        if alike(before, network_state(copy)):
            continue
        # A copy that was never called; a function has no such copy.
        module = isinstance(network, nn.Module)
        if not module or not alike(result, after_another(own_copy(network), images)):
            raise Undecided("what a network computes depends on its first call")
    return results
