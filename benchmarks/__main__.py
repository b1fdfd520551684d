"""`python -m benchmarks [--quick] [--output FOLDER] [PAGE ...]`: measures everything and writes every page.

Each page is what `python -m benchmarks.PAGE` prints in a fresh process on one thread; beside it stands a hash of the
files that it measured, so that a page older than the code is known.
"""

import hashlib
import os
import platform
import time
from pathlib import Path

import click
import torch

from benchmarks.processes import output_of

ROOT = Path(__file__).parent
PAGES = {
    "engines": "Attention beside the convolution that it is: networks, layers, steps, compiled, memory",
    "content": "Attention that reads content, beside the same layer without positions",
    "training": "Training steps of the paper's network, generalised heads, silent content",
    "spans": "check-span against the grid",
    "tightness": "Bounds beside the worst differences found",
    "graphs": "Graph layers beside torch_geometric",
    "certificates": "Certificates of networks: time and memory",
    "folds": "Folded networks, equal but for rounding: forwards and memory",
}
"""The title of each page."""


def processor() -> str:
    """The model name of the processor, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def code_hash(page: str) -> str:
    """A hash of the package and of the page's own program: of what its figures speak of."""
    files = [*sorted((ROOT.parent / "conv2attn").rglob("*.py")), ROOT / f"{page}.py"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def measured(page: str, quick: bool) -> str:
    """The page, with the machine and the hash."""
    load, start = os.getloadavg()[0], time.monotonic()
    text = output_of(page, *(["--quick"] if quick else []))
    machine = f"{processor()}, torch {torch.__version__}, one thread, load {load:.1f} when measuring began"
    note = f"Written by `python -m benchmarks {page}` in {time.monotonic() - start:.0f} s: {machine}."
    return f"# {PAGES[page]}\n\n{note} Code measured: `{code_hash(page)}`.\n\n{text.strip()}\n"


def index() -> str:
    """README.md of this folder."""
    rows = "\n".join(f"| [{page}]({page}.md) | {title} |" for page, title in PAGES.items())
    return f"""# Speed, memory and tightness

`python -m benchmarks` measures everything and writes every page again; `python -m benchmarks PAGE` writes one.
A page names the hash of the code that it measured.

| page | what is measured |
| --- | --- |
{rows}

[Networks of torchvision and timm](../docs/zoo.md) have a command of their own, `make zoo`.
"""


@click.command()
@click.argument("pages", nargs=-1, type=click.Choice(list(PAGES)))
@click.option("--quick", is_flag=True, help="Small sizes: whether it runs, not how fast.")
@click.option("--output", type=click.Path(path_type=Path), default=ROOT, help="Folder to write into.")
def main(pages: tuple[str, ...], quick: bool, output: Path) -> None:
    """Speed and memory of attention beside what it replaces."""
    for page in pages or PAGES:
        click.echo(f"{page} ...", err=True)
        (output / f"{page}.md").write_text(measured(page, quick))
    (output / "README.md").write_text(index())


if __name__ == "__main__":
    main()
