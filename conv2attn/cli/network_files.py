"""The work of convert, verify, replay and demo, between the files and the certificate."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints import load, save
from conv2attn.checkpoints.examples import demo_files
from conv2attn.checkpoints.folders import sha256
from conv2attn.checkpoints.options import Reading
from conv2attn.checkpoints.reading import read
from conv2attn.checkpoints.saving import PROGRAMS, SUFFIXES
from conv2attn.checkpoints.writing import write_atomically
from conv2attn.cli.progress import progress
from conv2attn.equivalence import Certificate, Replay, certify, replay
from conv2attn.equivalence.rechecking import architecture_in
from conv2attn.equivalence.replay import REMEDY
from conv2attn.errors import CheckpointError, Conv2AttnWarning, UsageError
from conv2attn.models import conversion_of, convert
from conv2attn.theorem import STOCK
from conv2attn.verdicts import Verdict

RUN = (*STOCK, MultiHeadSelfAttention)


def convert_file(
    model: str,
    destination: Path,
    *,
    alpha: str,
    encoding: str,
    stride_by: str,
    reading: Reading,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    keep_refuted: bool,
    force: bool,
    engine: str | None,
    **running: Any,
) -> tuple[Certificate, bool]:
    """Converts the network in a file, certifies it, and writes it unless it was refuted; whether it was written."""
    original = prepared(reading.load(model), running)
    options: Any = {"alpha": number_or_auto(alpha), "encoding": encoding, "stride_by": stride_by}
    with warnings.catch_warnings(action="ignore", category=Conv2AttnWarning):
        network = convert(original, only=only, skip=skip, **options)
    if not conversion_of(network).rows and not isinstance(original, STOCK):
        raise UsageError("C2A101", f"{model} holds no convolution to convert", "See what it is with verify.")
    with counted(original, network):
        certificate = certify(original, network, **inputs(running, original, reading))
    refuted = certificate.verdict is Verdict.REFUTED
    if not refuted or keep_refuted:
        about = program_options(destination, engine, certificate, running)
        save(network.cpu(), destination, force=force, refuted=refuted, **about)
    return certificate, not refuted or keep_refuted


def program_options(
    destination: Path, engine: str | None, certificate: Certificate, running: dict[str, Any]
) -> dict[str, Any]:
    """Arguments of `save` for a .pt2 or .onnx file: engine, input size, bound, and a summary of the certificate.

    Raises:
        UsageError: an engine is named for a file that holds none (C2A004).
    """
    if destination.suffix not in PROGRAMS:
        if engine:
            raise UsageError("C2A004", f"--engine {engine} changes nothing in {destination}", "Write .pt2 or .onnx.")
        return {}
    outputs, size = certificate.outputs, running["input_size"]
    return {
        "engine": engine,
        "input_size": parse_size(size) if size else None,
        "bound": outputs.bound if outputs else None,
        "notes": {"certificate": f"{certificate.verdict.value} ({certificate.strength.value}): {certificate.claim}"},
    }


def verify_files(
    original: str,
    converted: str,
    *,
    tolerance: float | None,
    save_witness: str | None,
    command: str,
    repeat: str,
    force: bool,
    reading: Reading,
    **running: Any,
) -> Certificate:
    """The certificate of the networks in two files; inputs that show what is refuted are kept in `save_witness`."""
    first, second = (prepared(reading.load(path), running) for path in (original, converted))
    files = {"original": original, "converted": converted}
    hashes = {f"{key} sha256": sha256(Path(path)) for key, path in files.items()}
    named = {f"{key} architecture": text for key, path in files.items() if (text := architecture_in(path))}
    told = [*files.items(), *hashes.items(), *named.items(), ("command", command)]
    with counted(first, second):
        found = certify(first, second, **inputs(running, first, reading), tolerance=tolerance, circumstances=told)
    if save_witness and found.witnesses:
        kept = [{**vars(witness), "image": witness.image.cpu()} for witness in found.witnesses]
        write_atomically(save_witness, {"witnesses": kept}, force)
        found = replace(found, circumstances=(*found.circumstances, ("repeat", repeat)))
    return found


def replay_file(
    witness: str, original: str, converted: str, *, tolerance: float | None, reading: Reading, **running: Any
) -> Replay:
    """Runs the networks in two files on the inputs kept in a third, and reports how they differ."""
    first, second = (prepared(reading.load(path), running) for path in (original, converted))
    return replay(read_witnesses(witness), witness, first, second, tolerance)


def read_witnesses(path: str) -> dict[Any, Any]:
    """Reads a file that `verify --save-witness` wrote.

    Raises:
        CheckpointError: there is no such file, it is damaged, or it is of another kind.
    """
    try:
        return read(path)
    except CheckpointError as error:
        if error.code != "C2A303":
            raise
        raise CheckpointError("C2A303", f"{error.found}, so it is no witness file", REMEDY) from error


def demonstrate(output: str | None, force: bool) -> tuple[Certificate, bool]:
    """The certificate of the trained example on its own labelled images; whether it was written to `output`."""
    demo = demo_files()
    original = load(demo.model)
    network = convert(original)
    described = f"{len(demo.images)} test images of Fashion-MNIST"
    with counted(original, network):
        certificate = certify(original, network, images=demo.images, labels=demo.labels, described=described)
    if output is None or certificate.verdict is Verdict.REFUTED:
        return certificate, False
    save(network, output, force=force)
    return certificate, True


def check_plot(plot: str | None) -> None:
    """Refuses, before any work is done, a picture that could not be made; see `plots.check_drawable`."""
    if plot is not None:
        from conv2attn import plots

        plots.check_drawable(plot)


def draw(certificate: Certificate, plot: str | None, force: bool) -> None:
    """Writes the picture of a certificate, if one is asked for."""
    if plot is not None:
        from conv2attn import plots

        plots.write(plots.draw_certificate(certificate), plot, force)


@contextmanager
def counted(*networks: nn.Module) -> Iterator[None]:
    """Shows how many runs of their convolutions and attention layers are done; a certificate runs each about twice."""
    runs = 2 * sum(isinstance(each, RUN) for network in networks for each in network.modules())
    done = 0
    with progress() as shown:

        def count(module: nn.Module, *_: Any) -> None:
            nonlocal done
            if isinstance(module, RUN):
                done = min(done + 1, runs)
                shown(done + 1, runs, "verifying")

        hook = register_module_forward_hook(count)
        try:
            yield
        finally:
            hook.remove()


def prepared(network: nn.Module, running: dict[str, Any]) -> nn.Module:
    """The network in the dtype and on the device asked for.

    Raises:
        UsageError: there is no such device (C2A002).
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            device = torch.device(running["device"])
            torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError("C2A002", f"device {running['device']!r} is not here", "Use --device cpu.") from error
    dtype = running["dtype"]
    return network.to(device, getattr(torch, dtype) if dtype else None)


def inputs(running: dict[str, Any], network: nn.Module, reading: Reading) -> dict[str, Any]:
    """The inputs for the networks, as `certify` takes them; images are prepared as `network` takes them."""
    if not 0 < running["input_range"] < math.inf:
        raise UsageError("C2A001", f"--input-range {running['input_range']:g} is not a positive finite number")
    size = parse_size(running["input_size"]) if running["input_size"] else None
    images, described = reading.images(running["images"], network, size) if running["images"] else (None, None)
    if images is not None:
        images = images.to(running["device"], getattr(torch, running["dtype"] or "float32"))
    return {
        "input_size": size,
        "input_range": running["input_range"],
        "images": images,
        "described": described,
        "seed": running["seed"],
    }


def parse_size(text: str) -> tuple[int, ...]:
    """`3x224x224` as numbers.

    Raises:
        UsageError: it is not positive integers with an x between them (C2A006).
    """
    parts = text.lower().split("x")
    if len(parts) < 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError("C2A006", f"--input-size {text} is not CHANNELSxSIDE[xSIDE[xSIDE]]", "Write 3x224x224, say.")
    return tuple(int(part) for part in parts)


def number_or_auto(text: str) -> float | str:
    """A number if the text is one, else the text."""
    try:
        return float(text)
    except ValueError:
        return text


def beside(model: Path) -> Path:
    """Where the converted network goes by default: beside the file, .attn before a suffix under which we write."""
    suffix = model.suffix if model.suffix in SUFFIXES else ".pt"
    return (
        model.with_suffix(f".attn{suffix}") if not model.is_dir() else model.parent / f"{model.resolve().name}.attn.pt"
    )
