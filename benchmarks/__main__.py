"""`python -m benchmarks [--quick] [--output FOLDER] [PAGE ...]`: measures everything and writes every page.

Each page is what `python -m benchmarks.PAGE` prints in a fresh process on one thread; beside it stands a hash of the
files that it measured, so that a page older than the code is known.
"""

import hashlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import click
import torch

ROOT = Path(__file__).parent
PAGES = {
    "engines": "the engines beside the convolution: networks, layers, steps, compiled",
    "training": "training steps of the paper's network, generalised heads, silent content, patches",
    "spans": "check-span against the grid",
    "tightness": "bounds beside the worst differences found",
    "graphs": "graph layers beside torch_geometric",
    "certificates": "certificates",
}
ALONE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


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
    command = [sys.executable, "-m", f"benchmarks.{page}", *(["--quick"] if quick else [])]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **ALONE})
    machine = f"{processor()}, torch {torch.__version__}, one thread, load {load:.1f} when measuring began"
    title, _, rest = (
        done.stdout.partition("\n") if done.stdout.startswith("#") else (f"# {page.title()}", "", done.stdout)
    )
    note = f"Written by `python -m benchmarks {page}` in {time.monotonic() - start:.0f} s: {machine}."
    return f"{title}\n\n{note} Code measured: `{code_hash(page)}`.\n\n{rest.strip()}\n"


def index() -> str:
    """README.md of this folder."""
    rows = "\n".join(f"| [{page}]({page}.md) | {text} |" for page, text in PAGES.items())
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
