"""The certificate of two networks: the conjunction of the verdicts on their layers and on the code between them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from conv2attn.arguments import is_size
from conv2attn.equality.asked import asked_of
from conv2attn.equality.calls import seeded
from conv2attn.equality.certificate.circumstances import circumstances_of
from conv2attn.equality.certificate.results import Certificate, unsupported
from conv2attn.equality.certificate.several_sizes import at_all_sizes
from conv2attn.equality.comparison import Comparison
from conv2attn.equality.fingerprint.field import Progress
from conv2attn.equality.layers.layer_pairs import read_pairs
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.fast_path import without_fast_path
from conv2attn.networks.specimens import Arguments


def certify(
    original: nn.Module,
    network: nn.Module,
    *inputs: Any,
    forward: Mapping[str, Any] | None = None,
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
    match: Mapping[Any, Any] | None = None,
) -> Certificate:
    """Whether two networks are the same map in the forward pass, how strongly that is known, and where they differ.

    A conversion is compared layer by layer: geometry equal as affine forms in the input size, sums of `W_val W_out` at
    each offset and biases equal as real numbers, leaked mass at most the unit roundoff; *proved* where the leak is
    exactly 0 in the dtype, else *bounded*. Between the layers both networks must be the same objects of the same code,
    under one premise: this code does the same at every call, calls its layers and reads nothing else of them. Both also
    run, and are equal bit for bit with the second's layers in both.

    Any other pair is called twice, and refuted if the outputs differ by more than 100 times the rounding that was
    measured (*sampled*). Otherwise both are compared as formulas over finite fields (*identified*, at the sizes run),
    and where the formulas differ, section by section on random numbers (*rounded*).

    Copies of the networks are run, so both networks, their modes and all generators stay unchanged.

    Args:
        inputs: as the networks are called: images, ids of tokens, several tensors, masks. Claims about formulas are for
            all numbers in tensors of floating-point numbers; masks (0, 1 and large negative numbers), ids and plain
            values are fixed, and ids are replaced by their embeddings.
        forward: further arguments of the networks' call by name: forward={"attention_mask": mask}.
        example_input: `images` if it is a tensor, and `input_size` if it is a size.
        input_size: (channels, *sides) of seeded random images, if no inputs are passed.
        input_range: those images lie within +-input_range.
        images: `inputs` of one tensor, (batch, channels, *sides).
        labels, described: the classes of the inputs, and their name in the report.
        also_sizes: (channels, *sides) of further random images; everything is compared at each, and the claim names
            them.
        also_modes: "gradients", "inference": further modes in which both are called on the inputs that are run.
        circumstances: further facts about the two, such as the files that they come from.
        progress: called before each operator that is traced as a formula, with its number from 1, the number of
            operators of that run, and the current step.
        match: tensors of the outputs that belong together, by index or name: {"logits": 0}. By default, tensors of
            equal paths or names are compared, or a single one each; packing does not matter.
    Raises:
        UsageError: an argument is of the wrong kind (C2A006); the input size is unknown (C2A005), it has more than 2^26
            numbers or some beyond the dtype (C2A001); the original does not run on it (C2A009); autocast is on, or two
            arguments pass inputs (C2A004); torch is compiling (C2A010).
    Examples:
        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        >>> certificate = conv2attn.certify(conv, conv2attn.convert(conv), input_size=(3, 6, 7))
        >>> certificate.verdict, certificate.strength
        (<Verdict.HOLDS: 'holds'>, <Strength.PROVED: 'proved'>)
    """
    if example_input is not None:
        if images is not None or input_size is not None:
            raise UsageError(
                "C2A004", "example_input was passed together with images or input_size", "Pass one of them."
            )
        images, input_size = (None, example_input) if is_size(example_input) else (example_input, None)
    if images is not None:
        if inputs or forward:
            raise UsageError("C2A004", "inputs were passed together with images or example_input", "Pass one of them.")
        inputs = (images,)
    with uncompiled(), without_fast_path():
        call = Arguments(inputs, {} if forward is None else forward)  # type: ignore[arg-type]
        asked = asked_of(
            original,
            network,
            call,
            [*([] if any(call) else [input_size]), *also_sizes],
            described=described,
            labels=labels,
            input_range=input_range,
            modes=also_modes,
            seed=seed,
            progress=progress,
            match=match,
        )
        device = asked.specimens[0].main.device
        if torch.is_autocast_enabled(device.type):
            sentence = "autocast is on, so layers compute in another dtype"
            raise UsageError("C2A004", sentence, "Cast the networks.")
        facts = circumstances_of(asked, circumstances)
        # Each call seeds its own generators. Draws while networks are copied or traced must not advance the caller's
        # either.
        with seeded([device]):
            try:
                pairs = read_pairs(*asked.networks)
                compared = [Comparison(asked, specimen, pairs) for specimen in asked.specimens]
                certificate = at_all_sizes([each.certificate() for each in compared])
            except UnsupportedError as error:
                return Certificate((), (unsupported(error.code, error.found),), circumstances=facts, seed=seed)
    return replace(certificate, circumstances=facts, seed=seed)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Refuses to run while torch is compiling or exporting, and to leave compilation switched on.

    Raises:
        UsageError: torch is compiling (C2A010).
    """

    def check(when: str) -> None:
        if torch.compiler.is_compiling():
            sentence = f"torch is compiling or exporting {when} this call: networks behave differently now than later"
            raise UsageError("C2A010", sentence, "Call it outside torch.compile and torch.export, or in a new process.")

    check("around")
    yield
    check("after")
