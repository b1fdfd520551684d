"""The work of convert, verify, recheck and demo, from files to the certificate."""

import dataclasses
import math
import shlex
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from torch import nn

from conv2attn.arguments import Selection, tensors_in
from conv2attn.cli.options import Running
from conv2attn.equality import Certificate, Recheck, certify, recheck_certificate, symmetric
from conv2attn.equality.certificate.rechecking import MOVED_FILES
from conv2attn.equality.certificate.results import with_names
from conv2attn.equality.certificate.stored_certificates import is_regular, read_certificate
from conv2attn.equality.twins.bits import sha256_of
from conv2attn.errors import CheckpointError, Conv2AttnWarning, UsageError
from conv2attn.examples import demo_files
from conv2attn.files import load, save
from conv2attn.files.atomic_files import replacing
from conv2attn.files.contents import PROGRAM_KINDS, sha256
from conv2attn.files.kinds import kind_of_path
from conv2attn.files.reading_options import Reading
from conv2attn.layers.theorem import STOCK
from conv2attn.networks import attention_layers, conversion_of, convert
from conv2attn.networks.conversion.outcomes import SKIPPED, no_convolution_text
from conv2attn.networks.specimens import Arguments, map_tensors
from conv2attn.report.progress import progress
from conv2attn.suffixes import EXPORTS
from conv2attn.verdicts import Verdict


def convert_file(
    model: str,
    destination: Path,
    *,
    alpha: float | str,
    encoding: str,
    stride_by: str,
    reading: Reading,
    only: Selection,
    keep_refuted: bool,
    force: bool,
    engine: str | None,
    running: Running,
) -> tuple[Certificate, bool]:
    """Converts and certifies the network in a file, and writes it unless refuted; returns whether it was written."""
    check_engine(destination, engine)
    original = prepared(reading.load(model), running)
    options: Any = {"alpha": alpha, "encoding": encoding, "stride_by": stride_by}
    with warnings.catch_warnings(action="ignore", category=Conv2AttnWarning):
        network = convert(original, only=only, **options)
    rows = conversion_of(network).rows
    if not rows and not isinstance(original, STOCK):
        raise nothing_to_convert(model, original)
    if rows and all(row.outcome == SKIPPED for row in rows):
        raise UsageError("C2A008", f"every convolution of {model} is skipped", "Leave one in.")
    certificate = certify_with((original, network), [("original", model)], call_of(running, original, reading))
    refuted = certificate.verdict is Verdict.REFUTED or bool(certificate.rows_refuted)
    if not refuted or keep_refuted:
        about = program_options(destination, engine, certificate, running)
        # Written only after the certificate: a refuted network is not left behind as a file.
        save(network.cpu(), destination, force=force, refuted=refuted, **about)
    return certificate, not refuted or keep_refuted


def nothing_to_convert(path: str, network: nn.Module) -> UsageError:
    """The error for a network in a file without convolutions to convert, with advice."""
    kind = kind_of_path(Path(path))
    operators = PROGRAM_KINDS[kind].parts(Path(path))[0] if kind in PROGRAM_KINDS else []
    if count := sum("conv" in name.lower() for name in operators):
        reason = f"{path} is a program, whose {count} convolutions are operators, not layers"
        return UsageError("C2A101", reason, "Convert the network that it was exported from.")
    if count := len(attention_layers(network)):
        reason = f"{path} holds no convolution: {count} of its layers are attention of conv2attn already"
        return UsageError("C2A101", reason, f"Compare it with its original: conv2attn verify ORIGINAL {path}.")
    reason = f"{path} holds nothing to convert: {no_convolution_text(network)}, and calls none"
    return UsageError("C2A101", reason, f"Ask what its attention does, if it has any: conv2attn heads {path}.")


def check_engine(destination: Path, engine: str | None) -> None:
    """Refuses an engine for a file that stores none, before anything is read.

    Raises:
        UsageError: the file stores no engine (C2A004).
    """
    if engine and destination.suffix not in EXPORTS:
        raise UsageError(
            "C2A004", f"--engine {engine} has no effect on {destination}", f"Write {' or '.join(EXPORTS)}."
        )


def program_options(
    destination: Path, engine: str | None, certificate: Certificate, running: Running
) -> dict[str, Any]:
    """Arguments of `save` for a file of `EXPORTS`: engine, input size, and a summary of the certificate."""
    if destination.suffix not in EXPORTS:
        return {}
    return {
        "engine": engine,
        "example_input": running.input_size,
        "notes": {"certificate": f"{certificate.verdict.value} ({certificate.strength.value}): {certificate.claim}"},
    }


def verify_files(
    original: str,
    converted: str,
    *,
    save_input: str | None,
    match: Sequence[tuple[str | int, str | int]] = (),
    command: str,
    force: bool,
    reading: Reading,
    running: Running,
) -> Certificate:
    """The certificate of the networks in two files; a counterexample is written to `save_input`."""
    loaded = reading.load(original)
    networks = prepared(loaded, running), prepared(reading.load(converted, loaded), running)
    files = {"original": original, "converted": converted}
    hashes = {f"{key} sha256": sha256(Path(path)) for key, path in files.items()}
    circumstances = [*files.items(), *hashes.items(), ("command", command)]
    called = call_of(running, networks[0], reading)
    if save_input and any(called[0]):
        sentence = f"--save-input keeps an image, and {running.inputs} holds several inputs of a call"
        raise UsageError("C2A004", sentence, "Leave it out: that file shows a difference by itself.")
    certificate = certify_with(networks, circumstances, called, match)
    if save_input and (image := certificate.input_shown) is not None:
        with replacing(Path(save_input), force) as temporary:
            savez(temporary, images=image[None].cpu().float().numpy())
        repeat = shlex.join(["conv2attn", "verify", original, converted, "--inputs", save_input])
        certificate = replace(certificate, circumstances={**certificate.circumstances, "repeat": repeat})
    return certificate


def symmetric_file(
    model: str, *, shift: tuple[int, ...] | None, flip: bool, permute: bool, reading: Reading, running: Running
) -> Certificate:
    """The certificate that the network in a file commutes with a movement: pixels moved before it, and after it.

    Raises:
        UsageError: not exactly one movement is passed (C2A004), or it has other axes than the input (C2A007).
    """
    network = prepared(reading.load(model), running)
    about = [("model", model), ("sha256", sha256(Path(model)))]
    movement: dict[str, Any] = {"shift": shift, "flip": flip, "permute": running.seed if permute else None}
    try:
        with progress() as bar:
            images = images_of(running, network, reading)
            return symmetric(network, **movement, circumstances=about, progress=bar, **images)
    except UsageError as error:
        raise type(error)(error.code, with_names(error.found, model, model), error.remedy) from error


def savez(path: Path, **arrays: Any) -> None:
    """`numpy.savez` under exactly this name."""
    with path.open("wb") as file:
        np.savez(file, **arrays)


def certify_with(
    networks: tuple[nn.Module, nn.Module],
    circumstances: Sequence[tuple[str, str]],
    called: tuple[Arguments, dict[str, Any]],
    match: Sequence[tuple[str | int, str | int]] = (),
) -> Certificate:
    """The certificate of two networks.

    Args:
        called: inputs and options from `call_of`.
        match: pairs of output tensors to compare.

    Raises:
        UsageError: as `certify`, with the names of the files.
    """
    if len(dict(match)) < len(match):
        raise UsageError("C2A004", "--match names one tensor of the first output twice", "Match each tensor once.")
    try:
        with progress() as bar:
            call, about = called[0], {"match": dict(match), "circumstances": circumstances, "progress": bar}
            options = called[1] | about
            return certify(networks[0], networks[1], *call.positional, forward=call.named, **options)
    except UsageError as error:
        names = dict(circumstances)
        sentence = with_names(error.found, names["original"], names.get("converted", "the converted network"))
        raise type(error)(error.code, sentence, error.remedy) from error


def recheck_file(
    certificate: str,
    paths: tuple[str | None, str | None],
    inputs: str | None,
    reading: Reading,
    parsed: Callable[[str], tuple[str, dict[str, Any]]],
) -> Recheck:
    """Checks the certificate in a file by other means than in its derivation; see `recheck_certificate`.

    Options on reading files are never taken from a certificate, since they may run code.

    Args:
        paths: the two files, if they are not at the paths in the certificate.
        inputs: the file of the inputs, if it is not at its path in the certificate.
        parsed: parses the stored command into its usual form and its options by name.
    Raises:
        UsageError: the file is not a certificate of two files (C2A303), or the options on reading files or the inputs
            differ from those in it (C2A004).
        CheckpointError: a file is missing (C2A301), or cannot be read.
    """
    body = read_certificate(certificate)
    stored = body["circumstances"]
    command, options = parsed(stored["command"])
    files = {key: path or stored[key] for key, path in zip(("original", "converted"), paths, strict=True)}
    for path in files.values():
        if not is_regular(path, folder=True):
            raise CheckpointError("C2A301", f"{path[-80:]}of the certificate is missing", MOVED_FILES)
    hashes = {f"{key} sha256": sha256(Path(path)) for key, path in files.items()}
    changed = [files[key] for key in files if hashes[f"{key} sha256"] != stored[f"{key} sha256"]]
    if changed:
        what = "is not the file of the certificate: its sha256 differs"
        return Recheck(certificate, body["verdict"], tuple(f"{path} {what}" for path in changed))
    stored_reading = Reading(**{name: options.pop(name) for name in vars(reading)})
    running = Running(**{each.name: options.pop(each.name) for each in dataclasses.fields(Running)})
    if stored_reading != reading:
        reason = f"{certificate} was written with other options for reading its files: {command}"
        raise UsageError("C2A004", reason, "Pass the same options to recheck, such as --arch.")
    elsewhere = "Recheck it where that device is, or write it again: conv2attn verify A B --report FILE."
    loaded = reading.load(files["original"])
    both = loaded, reading.load(files["converted"], loaded)
    first, second = (prepared(each, running, elsewhere) for each in both)
    circumstances = [*((key, options.pop(key)) for key in files), *hashes.items(), ("command", command)]

    called = call_again(running, inputs, first, reading, body)

    def derive() -> Certificate:
        return certify_with((first, second), circumstances, called, options["match"])

    return recheck_certificate(certificate, body, (first, second), derive)


def call_again(
    running: Running, inputs: str | None, network: nn.Module, reading: Reading, body: dict[str, Any]
) -> tuple[Arguments, dict[str, Any]]:
    """The inputs and options of a stored certificate: from the file `inputs`, or by default from the one it names.

    Raises:
        UsageError: the certificate is of random inputs, or of others than these (C2A004).
        CheckpointError: the file is missing (C2A301) or cannot be read.
    """
    if running.inputs is None and inputs is not None:
        raise UsageError("C2A004", "the certificate is for random inputs, and names no file", "Leave out --inputs.")
    if running.inputs is None:
        return call_of(running, network, reading)
    path = inputs or running.inputs
    if not is_regular(path, folder=True):
        sentence = f"{path[-80:]}, the inputs of the certificate, is missing"
        raise CheckpointError("C2A301", sentence, "Pass its inputs: recheck CERTIFICATE --inputs FILE.")
    call, options = call_of(dataclasses.replace(running, inputs=path), network, reading)
    stored = {each.get("sha256") for each in body.get("inputs") or () if isinstance(each, dict)}
    if any(sha256_of(each) not in stored for each in tensors_in([call, options.get("images")])):
        sentence = f"{path[-80:]} has other inputs than the certificate: their sha256 differs"
        raise UsageError("C2A004", sentence, "Pass the file that was passed to verify.")
    # The file may have been renamed; the certificate refers to its inputs by the old name.
    described = options["described"].replace(Path(path).name, Path(running.inputs).name)
    return call, options | {"described": described}


def demonstrate(output: str | None, force: bool) -> tuple[Certificate, bool]:
    """The certificate of the trained example on its own labelled images; whether it was written to `output`."""
    demo = demo_files()
    original = load(demo.model)
    network = convert(original)
    described = f"{len(demo.images)} test images of Fashion-MNIST"
    certificate = certify(original, network, images=demo.images, labels=demo.labels, described=described)
    if output is None or certificate.verdict is Verdict.REFUTED:
        return certificate, False
    save(network, output, force=force)
    return certificate, True


def prepared(network: nn.Module, running: Running, remedy: str = "Use --device cpu.") -> nn.Module:
    """The network in the requested dtype and on the requested device.

    Raises:
        UsageError: there is no such device (C2A002).
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            device = torch.device(running.device)
            torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError("C2A002", f"device {running.device!r} is not available", remedy) from error
    dtype = running.dtype
    return network.to(device, getattr(torch, dtype) if dtype else None)


def call_of(running: Running, network: nn.Module, reading: Reading) -> tuple[Arguments, dict[str, Any]]:
    """The inputs of both networks from the file of `--inputs`, and the options of `certify`.

    Raises:
        UsageError: an option that changes images is passed with the inputs of a call (C2A004).
    """
    options = options_of(running)
    read = reading.call(running.inputs, network, running.input_size) if running.inputs else None
    if read is None:
        return Arguments((), {}), options | images_of(running, network, reading)
    call, described = read
    return map_tensors(lambda each: each.to(running.device), call), options | {"described": described}


def images_of(running: Running, network: nn.Module, reading: Reading) -> dict[str, Any]:
    """The prepared images for a network, or their size, and the options on running it."""
    size = running.input_size
    images, described = reading.images(running.inputs, network, size) if running.inputs else (None, None)
    if images is not None:
        images = images.to(running.device)
    return {"input_size": size, "images": images, "described": described, **options_of(running)}


def options_of(running: Running) -> dict[str, Any]:
    """The options on running networks, as arguments of `certify`.

    Raises:
        UsageError: the range is not positive and finite (C2A001).
    """
    if not 0 < running.input_range < math.inf:
        raise UsageError(
            "C2A001",
            f"--input-range {running.input_range:g} is not a positive finite number",
            "Pass a positive number, such as 1.",
        )
    return {
        "input_range": running.input_range,
        "seed": running.seed,
        "also_sizes": running.also_size,
        "also_modes": running.also_mode,
    }
