"""The work of convert, verify, replay and demo, between the files and the certificate."""

import math
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import asdict, replace
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from conv2attn.arguments import Selection
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints import load, save
from conv2attn.checkpoints.atomic_files import write_atomically
from conv2attn.checkpoints.contents import PROGRAM_KINDS, sha256
from conv2attn.checkpoints.kinds import kind_of_path
from conv2attn.checkpoints.reading_options import Reading
from conv2attn.checkpoints.saving import PROGRAMS
from conv2attn.checkpoints.torch_files import read_dict
from conv2attn.cli.options import Running
from conv2attn.equality import Certificate, Replay, certify, replay_counterexamples
from conv2attn.equality.rechecking import MOVED_FILES, Recheck, is_regular, read_certificate, recheck_certificate
from conv2attn.equality.replay import WITNESS_REMEDY
from conv2attn.errors import CheckpointError, Conv2AttnWarning, UsageError
from conv2attn.examples import demo_files
from conv2attn.models import attention_layers, conversion_of, convert
from conv2attn.models.conversion.network import no_convolution_text
from conv2attn.models.conversion.outcomes import SKIPPED
from conv2attn.report.progress import progress
from conv2attn.theorem import STOCK
from conv2attn.verdicts import Verdict

COUNTED_LAYERS = (*STOCK, MultiHeadSelfAttention)


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
    """Converts the network in a file, certifies it, and writes it unless it was refuted; whether it was written."""
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
    with certifying_progress(original, network):
        certificate = certify(original, network, **inputs(running, original, reading))
    refuted = certificate.verdict is Verdict.REFUTED
    if not refuted or keep_refuted:
        about = program_options(destination, engine, certificate, running)
        save(network.cpu(), destination, force=force, refuted=refuted, **about)
    return certificate, not refuted or keep_refuted


def nothing_to_convert(path: str, network: nn.Module) -> UsageError:
    """Why the network in a file has no convolution to convert, and what to do."""
    kind = kind_of_path(Path(path))
    operators = PROGRAM_KINDS[kind].parts(Path(path))[0] if kind in PROGRAM_KINDS else []
    if count := sum("conv" in name.lower() for name in operators):
        reason = f"{path} is a program, whose {count} convolutions are operators and not layers"
        return UsageError("C2A101", reason, "Convert the network that it was exported from.")
    if count := len(attention_layers(network)):
        reason = f"{path} holds no convolution: {count} of its layers are attention of conv2attn already"
        return UsageError("C2A101", reason, f"Compare it with its original: conv2attn verify ORIGINAL {path}.")
    reason = f"{path} holds nothing to convert: {no_convolution_text(network)}, and calls none"
    return UsageError("C2A101", reason, f"Ask what its attention does, if it has any: conv2attn heads {path}.")


def check_engine(destination: Path, engine: str | None) -> None:
    """Refuses an engine for a file that holds none, before anything is read.

    Raises:
        UsageError: it holds none (C2A004).
    """
    if engine and destination.suffix not in PROGRAMS:
        raise UsageError("C2A004", f"--engine {engine} changes nothing in {destination}", "Write .pt2 or .onnx.")


def program_options(
    destination: Path, engine: str | None, certificate: Certificate, running: Running
) -> dict[str, Any]:
    """Arguments of `save` for a .pt2 or .onnx file: engine, input size, bound, and a summary of the certificate."""
    if destination.suffix not in PROGRAMS:
        return {}
    outputs = certificate.outputs
    return {
        "engine": engine,
        "example_input": running.input_size,
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
    running: Running,
) -> Certificate:
    """The certificate of the networks in two files; inputs that show what is refuted are kept in `save_witness`."""
    networks = tuple(prepared(reading.load(path), running) for path in (original, converted))
    files = {"original": original, "converted": converted}
    hashes = {f"{key} sha256": sha256(Path(path)) for key, path in files.items()}
    circumstances = [*files.items(), *hashes.items(), ("command", command)]
    certificate = certify_with(networks, tolerance, circumstances, reading, running)
    if save_witness and certificate.counterexamples:
        witnesses = [{**asdict(each), "image": each.image.cpu()} for each in certificate.counterexamples]
        write_atomically(save_witness, {"witnesses": witnesses}, force)
        certificate = replace(certificate, circumstances={**certificate.circumstances, "repeat": repeat})
    return certificate


def certify_with(
    networks: Any, tolerance: float | None, circumstances: Sequence[tuple[str, str]], reading: Reading, running: Running
) -> Certificate:
    """The certificate of two networks, on the inputs that the options on running name."""
    with certifying_progress(*networks):
        arguments = inputs(running, networks[0], reading)
        return certify(*networks, **arguments, tolerance=tolerance, circumstances=circumstances)


def recheck_file(
    certificate: str,
    paths: tuple[str | None, str | None],
    reading: Reading,
    parsed: Callable[[str, str], tuple[str, dict[str, Any], str]],
) -> Recheck:
    """Derives the certificate in a file anew, as the command in it says, and compares.

    How files are read is not taken from a certificate: that may run code.

    Args:
        paths: the two files, where they are not at the paths in the certificate.
        parsed: of the command and a file of saved inputs, the command in its usual form, its options by name, and the
            command that replays that file.
    Raises:
        UsageError: it is no certificate of two files (C2A303), or the files were read in another way then (C2A004).
        CheckpointError: a file is missing (C2A301), or cannot be read.
    """
    body = read_certificate(certificate)
    stored = body["circumstances"]
    witness = witness_of(stored)
    command, options, repeat = parsed(stored["command"], witness)
    files = {key: path or stored[key] for key, path in zip(("original", "converted"), paths, strict=True)}
    for path in files.values():
        if not is_regular(path, folder=True):
            raise CheckpointError("C2A301", f"{path[-80:]}, which the certificate is of, is not there", MOVED_FILES)
    hashes = {f"{key} sha256": sha256(Path(path)) for key, path in files.items()}
    changed = [files[key] for key in files if hashes[f"{key} sha256"] != stored[f"{key} sha256"]]
    if changed:
        what = "is not the file that the certificate is of: its sha256 is another"
        return Recheck(certificate, body["verdict"], 0, tuple(f"{path} {what}" for path in changed))
    stored_reading = Reading(**{name: options.pop(name) for name in vars(reading)})
    running = Running(**{each.name: options.pop(each.name) for each in fields(Running)})
    if stored_reading != reading:
        reason = f"{certificate} was written with other options on reading its files: {command}"
        raise UsageError("C2A004", reason, "Give recheck the same: --arch and what else it names.")
    elsewhere = "Recheck it where that device is, or write it again: conv2attn verify A B --report FILE."
    networks = tuple(prepared(reading.load(path), running, elsewhere) for path in files.values())
    circumstances = [*((key, options.pop(key)) for key in files), *hashes.items(), ("command", command)]
    anew = certify_with(networks, options.pop("tolerance"), circumstances, reading, running)
    if witness and anew.counterexamples:
        anew = replace(anew, circumstances={**anew.circumstances, "repeat": repeat})
    return recheck_certificate(certificate, body, (networks[0], networks[1]), anew)


def witness_of(circumstances: Mapping[str, Any]) -> str:
    """The file of saved inputs that a certificate names in its command to replay them; empty where it has none."""
    try:
        return shlex.split(str(circumstances["repeat"]))[2]
    except (KeyError, ValueError, IndexError):
        return ""


def replay_file(
    witness: str, original: str, converted: str, *, tolerance: float | None, reading: Reading, running: Running
) -> Replay:
    """Runs the networks in two files on the inputs kept in a third, and reports how they differ."""
    first, second = (prepared(reading.load(path), running) for path in (original, converted))
    return replay_counterexamples(read_witnesses(witness), witness, first, second, tolerance)


def read_witnesses(path: str) -> dict[Any, Any]:
    """Reads a file that `verify --save-witness` wrote.

    Raises:
        CheckpointError: there is no such file, it is damaged, or it is of another kind.
    """
    try:
        return read_dict(path)
    except CheckpointError as error:
        if error.code != "C2A303":
            raise
        raise CheckpointError("C2A303", f"{error.found}, so it is no witness file", WITNESS_REMEDY) from error


def demonstrate(output: str | None, force: bool) -> tuple[Certificate, bool]:
    """The certificate of the trained example on its own labelled images; whether it was written to `output`."""
    demo = demo_files()
    original = load(demo.model)
    network = convert(original)
    described = f"{len(demo.images)} test images of Fashion-MNIST"
    with certifying_progress(original, network):
        certificate = certify(original, network, images=demo.images, labels=demo.labels, described=described)
    if output is None or certificate.verdict is Verdict.REFUTED:
        return certificate, False
    save(network, output, force=force)
    return certificate, True


@contextmanager
def certifying_progress(*networks: nn.Module) -> Iterator[None]:
    """Shows how many runs of their convolutions and attention layers are done; a certificate runs each about twice."""
    runs = 2 * sum(isinstance(each, COUNTED_LAYERS) for network in networks for each in network.modules())
    done = 0
    with progress() as bar:

        def count(module: nn.Module, *_: Any) -> None:
            nonlocal done
            if isinstance(module, COUNTED_LAYERS):
                done = min(done + 1, runs)
                bar(done + 1, runs, "verifying")

        hook = register_module_forward_hook(count)
        try:
            yield
        finally:
            hook.remove()


def prepared(network: nn.Module, running: Running, remedy: str = "Use --device cpu.") -> nn.Module:
    """The network in the dtype and on the device asked for.

    Raises:
        UsageError: there is no such device (C2A002).
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            device = torch.device(running.device)
            torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError("C2A002", f"device {running.device!r} is not here", remedy) from error
    dtype = running.dtype
    return network.to(device, getattr(torch, dtype) if dtype else None)


def inputs(running: Running, network: nn.Module, reading: Reading) -> dict[str, Any]:
    """The inputs for the networks, as `certify` takes them; images are prepared as `network` takes them."""
    if not 0 < running.input_range < math.inf:
        raise UsageError(
            "C2A001",
            f"--input-range {running.input_range:g} is not a positive finite number",
            "Pass a positive number, such as 1.",
        )
    size = running.input_size
    images, described = reading.images(running.inputs, network, size) if running.inputs else (None, None)
    if images is not None:
        images = images.to(running.device)
    return {
        "input_size": size,
        "input_range": running.input_range,
        "images": images,
        "described": described,
        "seed": running.seed,
    }
