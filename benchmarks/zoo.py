"""State dicts of torchvision and timm by `conv2attn convert`: `python -m benchmarks.zoo [NAME ...]` writes docs/zoo.md.

The weights are random and the images small, since a certificate speaks of every weight and every size that its claim
names. Each network has a process of its own, and its row is written at once: a run that is stopped goes on later.
"""

import json
import multiprocessing
import resource
import tempfile
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import click
import numpy as np
import torch
from click.testing import CliRunner
from torch import nn

from conv2attn.cli import main as conv2attn

TIMM = (
    *("resnet18", "resnetblur18", "resnetv2_50", "seresnet18", "skresnet18", "ecaresnet26t", "res2net50_26w_4s"),
    *("resnest14d", "convnext_atto", "convnextv2_atto", "convmixer_768_32", "mobilenetv3_small_050", "ghostnet_050"),
    *("mobilenetv4_conv_small", "regnetx_002", "repvgg_a0", "dla34", "dpn48b", "hrnet_w18_small", "hardcorenas_a"),
    *("lcnet_050", "mixnet_s", "nfnet_f0", "nf_resnet50", "tf_efficientnet_lite0", "xception41"),
    *("vit_tiny_patch16_224", "deit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mobilevit_xxs"),
    *("edgenext_xx_small", "poolformer_s12", "levit_128s", "fastvit_t8", "pvt_v2_b0", "repvit_m0_9", "starnet_s1"),
    *("mambaout_femto", "inception_next_atto"),
)
LARGE = ("swin", "vit", "deit", "maxvit", "levit", "pvt")  # these take images of 224 pixels
PARAMETERS, SECONDS, MEMORY = 400e6, 300, 8 << 30  # what is larger is named and not run; what takes more is stopped
PAGE = Path(__file__).parent.parent / "docs" / "zoo.md"
HEAD = """# Networks of torchvision and timm

Classification models of torchvision and networks of timm, converted and certified on two random images, with
random weights. Of {all} networks, {proved} hold and are proved, {large} were not run, since they have more
than 400 million parameters and the comparison needs several copies of each network{rest}. Layers are compared
one by one, and between them both networks must be the same objects of the same code:
what the claim assumes is listed in [a certificate](certificates.md#the-question).
*Seconds* is the processor time of conversion and certificate together, on one thread; *MiB* is the peak memory of the
process, with torch and both libraries. Rows of 2026-11-22 are older than this
comparison: the one that gave them followed the code between layers as a graph. `git blame` dates a row.

`make zoo` runs the networks that have no row here; `python -m benchmarks.zoo NAME` runs one again.

| library | network | side | verdict | seconds | MiB | what does not hold |
| --- | --- | --- | --- | --- | --- | --- |
"""


def torchvision_models() -> list[str]:
    """The names of the classification models of torchvision."""
    import torchvision

    return list(torchvision.models.list_models(module=torchvision.models))


def timm_models() -> list[str]:
    """The names of all networks of timm."""
    import timm

    return list(timm.list_models())


def built(library: str, name: str) -> nn.Module:
    """A network with random weights, in evaluation mode."""
    torch.manual_seed(0)
    if library == "timm":
        import timm

        network: nn.Module = timm.create_model(name, pretrained=False)
    else:
        import torchvision

        options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        network = torchvision.models.get_model(name, weights=None, **options)
    return network.eval()


def side_of(name: str) -> int:
    """The side of the images that a network is run on."""
    return 224 if name.startswith(LARGE) else 128 if name == "inception_v3" else 64


def certified(library: str, name: str) -> list[str]:
    """The cells of a network: verdict, seconds, peak memory, and what does not hold."""
    side, start = side_of(name), time.process_time()
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with tempfile.TemporaryDirectory() as folder:
        weights, inputs = Path(folder) / "weights.pt", Path(folder) / "images.npy"
        try:
            state = built(library, name).state_dict()
        except Exception as error:  # a network of others may raise anything
            return ["not built", "-", "-", f"{type(error).__name__}: {str(error).partition(chr(10))[0][:160]}"]
        if (count := sum(each.numel() for each in state.values())) > PARAMETERS:
            return ["not run", "-", "-", f"{count / 1e6:.0f} million parameters"]
        torch.save(state, weights)
        np.save(inputs, images.numpy())
        del state
        options = ["--arch", f"{library}:{name}", "--inputs", str(inputs), "--format", "json"]
        result = CliRunner().invoke(conv2attn, ["convert", str(weights), *options])
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if not result.stdout.startswith("{"):
        said = result.stderr.strip().replace(folder + "/", "").splitlines() or [repr(result.exception)]
        return [f"exit {result.exit_code}", f"{seconds:.0f}", f"{peak:.0f}", said[-1][:160]]
    report = json.loads(result.stdout)
    verdict = report["verdict"] + (f" ({report['strength']})" if result.exit_code == 0 else "")
    reasons = [each["sentence"] for each in report["between"] if each["sentence"]]
    for row in report["rows"]:
        reasons += [f"{row['name']}: {each['sentence']}" for each in row["findings"] if each["verdict"] != "holds"]
    return [verdict, f"{seconds:.0f}", f"{peak:.0f}", reasons[0][:160] if reasons else ""]


def work(library: str, name: str, answer: Connection) -> None:
    """Certifies a network within the limits, and sends the cells of its row."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    answer.send(certified(library, name))


def row(library: str, name: str) -> str:
    """A line of the table, from a process of its own."""
    context = multiprocessing.get_context("fork")  # the libraries are imported once
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(library, name, theirs))
    process.start()
    theirs.close()
    try:
        cells = ours.recv()
    except EOFError:
        cells = ["stopped", "-", "-", f"more than {SECONDS} s of processor or {MEMORY >> 30} GiB"]
    process.join()
    return "| " + " | ".join(each.replace("|", " ") for each in [library, name, str(side_of(name)), *cells]) + " |"


def stored(page: Path) -> dict[tuple[str, str], str]:
    """The rows of a page by library and network."""
    lines = page.read_text().splitlines() if page.exists() else []
    cells = {line: line.removeprefix("| ").split(" | ") for line in lines}
    return {(each[0], each[1]): line for line, each in cells.items() if each[0] in ("torchvision", "timm")}


@click.command()
@click.argument("names", nargs=-1)
@click.option("--output", type=click.Path(path_type=Path), default=PAGE, help="The page; its rows are kept.")
@click.option("--whole", is_flag=True, help="Take all networks of timm, and not a selection.")
def main(names: tuple[str, ...], output: Path, whole: bool) -> None:
    """Certify the networks with these names, or all that have no row yet."""
    torch.set_num_threads(1)
    every = [("torchvision", name) for name in torchvision_models()]
    every += [("timm", name) for name in (timm_models() if whole else TIMM)]
    rows = stored(output)
    for key in [key for key in every if (key[1] in names if names else key not in rows)]:
        rows[key] = row(*key)
        click.echo(rows[key])
        found = [rows[each] for each in every if each in rows]
        proved, large = (sum(f"| {verdict} |" in line for line in found) for verdict in ("holds (proved)", "not run"))
        rest = len(every) - proved - large
        told = f"; {rest} have another verdict or no row yet" if rest else ""
        head = HEAD.format(all=len(every), proved=proved, large=large, rest=told)
        output.write_text(head + "\n".join(found) + "\n")


if __name__ == "__main__":
    main()
