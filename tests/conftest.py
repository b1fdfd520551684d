"""Options, profiles and the names of what could not be run, for all tests."""

import gc
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# One thread a test process: `pytest -n` already fills the cores. torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Libraries and test modules stay to the end: the collector waits until they are imported, then leaves them alone.
gc.disable()
# Commands show their reports as wide as they are; tests/report and tests/golden are on narrow terminals.
os.environ["COLUMNS"] = "240"

settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile(
    "ci", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("CONV2ATTN_PROFILE", "ci"))


def system_packages() -> dict[str, tuple[list[str], str]]:
    """What tests need beside Python: by name, the programs and paths that must all be there, and the packages."""
    lines = (Path(__file__).parent.parent / ".ci" / "packages.txt").read_text().splitlines()
    parts = [[part.strip() for part in line.split("|")] for line in lines if line and line[0] != "#"]
    return {name: (commands.split(), packages) for name, commands, packages in parts}


SYSTEM_PACKAGES = system_packages()


def absent_packages() -> dict[str, str]:
    """Names of `SYSTEM_PACKAGES` of which a program or path is not on this machine, each with what installs it."""
    return {
        name: f"apt-get install {packages}"
        for name, (commands, packages) in SYSTEM_PACKAGES.items()
        if not all(shutil.which(each) or Path(each).exists() for each in commands)
    }


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where the tests compute; one that is missing is an error")


def pytest_configure(config):
    config.addinivalue_line("markers", f"needs(name): runs where a system package is, one of {[*SYSTEM_PACKAGES]}")


def pytest_collection_modifyitems(config, items):
    """Run slow tests first, so that no worker ends alone with one, and deselect tests marked `needs` whose system
    package is absent; the summary names them."""
    needs = {item: {mark.args[0] for mark in item.iter_markers("needs")} for item in items}
    if unknown := set().union(*needs.values()) - SYSTEM_PACKAGES.keys():
        raise pytest.UsageError(f"tests need {unknown}, which .ci/packages.txt does not name")
    absent = absent_packages().keys()
    config.hook.pytest_deselected(items=[item for item in items if needs[item] & absent])
    items[:] = sorted(
        (item for item in items if not needs[item] & absent), key=lambda item: item.get_closest_marker("slow") is None
    )


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter):
    for need, how in absent_packages().items():
        terminalreporter.write_line(f"not run: what needs {need}, which is not here; {how}")


@pytest.fixture(scope="session")
def device(request):
    """The device named by --device, in full float32; a device that is not there is an error, never a skip.

    Tests of TF32, which CUDA convolutions use by default, switch it on for themselves.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return torch.empty(1, device=request.config.getoption("device")).device


@pytest.fixture
def process_group(tmp_path):
    """torch.distributed of this process alone, over gloo; the DistributedDataParallel of a test ends before it does."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    gc.collect()
    dist.destroy_process_group()
