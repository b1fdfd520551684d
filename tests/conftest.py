"""Options, profiles and the names of what could not be run, for all tests."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# One thread a test process: `pytest -n` already fills the cores. torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Commands show their reports as wide as they are; tests/report and tests/golden are on narrow terminals.
os.environ["COLUMNS"] = "240"

settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile(
    "ci", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("CONV2ATTN_PROFILE", "ci"))

SYSTEM_PACKAGES = {
    "coqc": "apt-get install coq libcoq-mathcomp-algebra libcoq-coquelicot libcoq-flocq libcoq-interval",
    "chromium": "apt-get install chromium chromium-driver",
    "g++": "apt-get install g++ python3-dev",
    "/usr/share/datasets/fashion-mnist": "apt-get install dataset-fashion-mnist",
}


def absent_packages() -> dict[str, str]:
    """Programs and folders of `SYSTEM_PACKAGES` that this machine lacks, each with the command that installs it."""
    return {need: how for need, how in SYSTEM_PACKAGES.items() if not (shutil.which(need) or Path(need).exists())}


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where the tests compute; one that is missing is an error")


def pytest_configure(config):
    config.addinivalue_line("markers", f"needs(name): runs where a system package is, one of {[*SYSTEM_PACKAGES]}")


def pytest_collection_modifyitems(config, items):
    """Run slow tests first, so that no worker ends alone with one, and deselect tests marked `needs` whose system
    package is absent; the summary names them."""
    needs = {item: {mark.args[0] for mark in item.iter_markers("needs")} for item in items}
    if unknown := set().union(*needs.values()) - SYSTEM_PACKAGES.keys():
        raise pytest.UsageError(f"tests need {unknown}, which tests/conftest.py does not know how to install")
    absent = absent_packages().keys()
    config.hook.pytest_deselected(items=[item for item in items if needs[item] & absent])
    items[:] = sorted(
        (item for item in items if not needs[item] & absent), key=lambda item: item.get_closest_marker("slow") is None
    )


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
