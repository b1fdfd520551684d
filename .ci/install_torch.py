"""Install torch where it is not there yet, as small as this machine needs, and say which.

.ci/install_torch.py CONSTRAINTS WRITTEN runs in the environment that gets it. A torch that is new enough is used as it
is. A machine without a GPU takes PyTorch's CPU build if the index of these can be reached. WRITTEN gets the
constraints for all further calls of pip: those given, without torch's own where another torch is used.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

INDEX = "https://download.pytorch.org/whl/cpu"
SECONDS = 5
ROOT = Path(__file__).parents[1]


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, without what follows them."""
    return tuple(map(int, re.match(r"[\d.]*\d", version)[0].split(".")))


def oldest() -> tuple[int, ...]:
    """The oldest version of torch that the package takes."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return next(numbers(each.partition(">=")[2]) for each in wanted if each.startswith("torch>="))


def reachable(index: str) -> bool:
    """Whether a package index answers."""
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=SECONDS) as answer:
            return answer.status == 200
    except OSError:
        return False


def source_of(installed: str | None, gpu: bool, index: bool) -> tuple[list[str] | None, str]:
    """Options of pip for torch, None to leave the installed one, and a sentence that says so."""
    if installed is not None:
        return None, f"torch {installed} is installed, and used"
    if gpu:
        return [], "a GPU is here: torch comes from pip's own index"
    if index:
        return ["--extra-index-url", INDEX], f"no GPU is here: torch's CPU build comes from {INDEX}"
    return [], f"no GPU is here, but {INDEX} cannot be reached: torch comes from pip's own index"


def main(constraints: str, written: str) -> None:
    """Installs torch, and writes the constraints."""
    lines = Path(constraints).read_text().splitlines()
    try:
        version = importlib.metadata.version("torch")
        installed = version if numbers(version) >= oldest() else None
    except importlib.metadata.PackageNotFoundError:
        installed = None
    gpu = sys.platform != "linux" or shutil.which("nvidia-smi") is not None or shutil.which("rocm-smi") is not None
    options, sentence = source_of(installed, gpu, installed is None and not gpu and reachable(INDEX))
    print(sentence, flush=True)
    if options is None:
        lines = [line for line in lines if not line.startswith("torch==")]
    Path(written).write_text("".join(f"{line}\n" for line in lines))
    if options is not None:
        subprocess.run([sys.executable, "-m", "pip", "install", "-qq", "-c", written, *options, "torch"], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
