"""The outputs of a network over a field: first a plain call with real numbers, then the same call with residues.

An example: for `torch.square` and an input of 3 numbers, the trace of the plain call has one operator, `aten.pow`. The
run over the field must call it too, and it returns the squares of the residues of the input, modulo each prime.
"""

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.equality.calls import eagerly
from conv2attn.equality.fingerprint.field import Field
from conv2attn.equality.fingerprint.repeated_calls import Network, called
from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.run import Run
from conv2attn.equality.fingerprint.state import alike, network_state, taken_apart
from conv2attn.equality.fingerprint.trace import Log, spoken
from conv2attn.torch_internals import DisableTorchFunctionSubclass


@final
@dataclass(frozen=True, eq=False)
class PlainRun:
    """A call of a network with real numbers, which its run over a field must repeat.

    Args:
        state: state of the network before the call; see `network_state`.
        form: the structure of the outputs; see `state.taken_apart`.
        outputs: their tensors.
        image: the input after the call, to which the code may have written.
        log: the operators, in their order; see `trace`.
        references: for each output, its storage and form in that log.
    """

    state: dict[int, Any]
    form: Any
    outputs: list[Tensor]
    image: Tensor
    log: list[tuple[Any, ...]]
    references: list[Any]


def plain_run(network: Network, images: Tensor, before: tuple[Any, list[Tensor]] | None = None) -> PlainRun:
    """Calls a network with real numbers and records its operators; the outputs must equal those of another plain call.

    Args:
        before: the outputs of that call; by default it is made here.
    Raises:
        Undecided: the network raises, its operators cannot be recorded, or the calls return different numbers.
    """
    state, outputs = network_state(network), list[Tensor]()
    image, log = images.clone(), Log()
    log.trace.make(image)
    try:
        form, alone = before or called(network, images)
        with torch.no_grad(), eagerly(), log:
            again = taken_apart(network(image), outputs)
        if log.failures:
            raise Undecided(log.failures[0])
        references = [log.trace.reference(each) for each in outputs]
    except Undecided:
        raise
    except Exception as error:
        raise Undecided(error_in_words(error)) from error
    same = again == form and forms(alone) == forms(outputs)
    if not same or not alike(alone, [each.detach() for each in outputs]):
        raise Undecided("two plain calls return different results")
    return PlainRun(state, form, outputs, image, log.trace.log, references)


def error_in_words(error: Exception) -> str:
    """An error raised by a network, in words."""
    return f"the network raises {type(error).__name__}: {str(error)[:80]}"


def fingerprint(
    network: Network, images: Tensor, field: Field, plain: PlainRun | None = None
) -> tuple[Any, list[Residues]]:
    """The structure of the outputs, and the residues of the outputs and of the input after the call.

    Args:
        plain: the plain run to repeat; by default it is made here.
    Raises:
        Undecided: an operator has no sound rule, or the code behaves differently than with real numbers.
    """
    plain = plain or plain_run(network, images)
    # In half precision rounding is part of the function, not a small error. So arithmetic narrower than float32 never
    # counts as exact: its results are oracles of their dtype.
    single = torch.finfo(images.dtype).eps <= torch.finfo(torch.float32).eps
    run = Run(field, images.dtype if single else torch.float32, plain.log)
    like = torch.empty_strided(images.size(), images.stride(), dtype=images.dtype, device="meta")
    image = run.numbers.fresh(like, Residues(field.input(images.shape)))
    run.trace.make(image)
    try:
        with torch.no_grad(), eagerly(), run:
            output = network(image)
    except Exception as error:
        raise Undecided(run.failures[0] if run.failures else error_in_words(error)) from error
    if run.failures:
        raise Undecided(run.failures[0])
    # Code that detects tensors without memory may return early, and two networks that do so would agree.
    if len(run.trace.log) != len(run.plan):
        missing = spoken(run.plan[len(run.trace.log)][0])
        raise Undecided(f"the network stops before {missing}, which it calls in a plain run")
    if not alike(plain.state, network_state(network)):
        raise Undecided("the network changes itself")
    leaves: list[Tensor] = []
    if taken_apart(output, leaves) != plain.form or forms(leaves) != forms(plain.outputs):
        raise Undecided("outputs of another structure than with real numbers")
    values = residues_of(run, plain, leaves, image)
    field.note(*values)
    field.oracle_values += sum(math.prod(each.shape) for each in values)
    return (plain.form, forms(leaves)), values


def residues_of(run: Run, plain: PlainRun, outputs: list[Tensor], image: Tensor) -> list[Residues]:
    """The residues of the outputs and of the input after a run.

    Raises:
        Undecided: an output is another tensor, or another constant, than in the plain run.
    """
    values = []
    with DisableTorchFunctionSubclass():
        # Outputs must be the same results of the same operators: equal residues of other tensors would prove nothing.
        if [run.trace.reference(each) for each in outputs] != plain.references:
            raise Undecided("other outputs than with real numbers")
        for each, real in zip((*outputs, image), (*plain.outputs, plain.image), strict=True):
            if run.numbers.depends(each):
                values.append(run.numbers.residues(each))  # type: ignore[arg-type]
            elif not alike(run.numbers.real(each).detach(), real.detach()):
                raise Undecided("constants that differ from those with real numbers")
            else:
                values.append(run.field.encode(run.numbers.real(each)))
    return values


def forms(tensors: list[Tensor]) -> list[Any]:
    """The dtypes and shapes of tensors."""
    return [(each.dtype, tuple(each.shape)) for each in tensors]


def same_outputs(first: tuple[Any, list[Residues]], second: tuple[Any, list[Residues]]) -> bool:
    """Whether structure and residues agree.

    Raises:
        Undecided: they agree, but some output is not finite.
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
    # Checked last: a difference elsewhere decides even if some outputs are not finite.
    if any(each.mark is not None for each in first[1]):
        raise Undecided("outputs that are not finite")
    return True
