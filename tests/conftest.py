"""Options, profiles and the names of what could not be run, for all tests."""

import gc
import os
import secrets
import shutil
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, core, settings

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
settings.register_profile(
    "mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate], print_blob=False
)  # a failure decides, and is shrunk for nobody
settings.register_profile("thorough", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fresh", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


SHARES = 4
"""Of tests marked `rotated` a quarter runs each day: cases of one kind, of which none is more telling than another."""
TODAY = datetime.now(UTC).toordinal()


def is_run(place, day, cases=SHARES):
    """Whether the case at a place of a rotated test with so many runs on a day: each does on one of `SHARES` days in a
    row, or more often, so that one runs on each day."""
    return (place + day) % min(SHARES, cases) == 0


def pytest_addoption(parser):
    parser.addoption("--device", help="the one device on which tests compute; one that is missing is an error")


def pytest_report_header(config):
    """The seed of the examples, where they are drawn anew: the same seed draws them again."""
    if os.environ.get("CONV2ATTN_PROFILE") != "fresh":
        return []
    if config.getoption("hypothesis_seed") is None:
        core.global_force_seed = secrets.randbits(32)
    return f"hypothesis draws anew: repeat with CONV2ATTN_PROFILE=fresh and --hypothesis-seed={core.global_force_seed}"


def pytest_configure(config):
    config.addinivalue_line("markers", "float64: computes in float64 on its device, of which some have none")
    config.addinivalue_line("markers", "rotated: a quarter of these tests runs each day, and all with CONV2ATTN_ALL=1")
    config.addinivalue_line("markers", f"needs(name): runs where a system package is, one of {[*SYSTEM_PACKAGES]}")


def pytest_collection_modifyitems(config, items):
    """Run slow tests first, so that no worker ends alone with one, and deselect tests marked `needs` whose system
    package is absent, and rotated ones of another day; the summary names them."""
    needs = {item: {mark.args[0] for mark in item.iter_markers("needs")} for item in items}
    if unknown := set().union(*needs.values()) - SYSTEM_PACKAGES.keys():
        raise pytest.UsageError(f"tests need {unknown}, which .ci/packages.txt does not name")
    absent = absent_packages().keys()
    # Tests that are named one by one are run, whatever day it is.
    whole = "CONV2ATTN_ALL" in os.environ or any("::" in argument for argument in config.args)
    rotated = defaultdict(list)  # the cases of each test
    for item in [] if whole else items:
        if item.get_closest_marker("rotated"):
            rotated[item.nodeid.partition("[")[0]].append(item)
    waiting = {item for cases in rotated.values() for at, item in enumerate(cases) if not is_run(at, TODAY, len(cases))}
    left_out = [item for item in items if needs[item] & absent or item in waiting]
    config.hook.pytest_deselected(items=left_out)
    items[:] = sorted(
        (item for item in items if item not in {*left_out}), key=lambda item: item.get_closest_marker("slow") is None
    )
    config.stash[WAITING] = len(waiting)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


WAITING = pytest.StashKey[int]()
"""How many rotated tests have another day."""


def pytest_terminal_summary(terminalreporter):
    if waiting := terminalreporter.config.stash.get(WAITING, 0):
        terminalreporter.write_line(f"not run: {waiting} rotated tests, which have another day; all by make attack")
    for need, how in absent_packages().items():
        terminalreporter.write_line(f"not run: what needs {need}, which is not here; {how}")


collect_ignore = ["imitated_device.py"]
"""pytest would import it a second time for doctests, and torch takes one device of a name."""
DEVICES = ("cpu", "imitated", "imitated without float64")
"""The devices of every run; CUDA is beside them where it is."""


def pytest_generate_tests(metafunc):
    """A test with `device` runs on every device, or on that of --device alone."""
    if "device" in metafunc.fixturenames:
        import torch

        asked = metafunc.config.getoption("device")
        names = [asked] if asked else [*DEVICES, *(["cuda"] if torch.cuda.is_available() else [])]
        if metafunc.definition.get_closest_marker("float64"):
            names = [name for name in names if "without float64" not in name and name != "mps"]
        metafunc.parametrize("device", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def device(request):
    """A device, in full float32; one of --device that is not there is an error, never a skip.

    Tests of TF32, which CUDA convolutions use by default, switch it on for themselves.
    """
    import torch

    # Not by `torch.backends.cudnn`, whose flags torch's own samples freeze for all tests that come next on a process.
    torch._C._set_cudnn_allow_tf32(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    if request.param.startswith("imitated"):
        import imitated_device

        return imitated_device.DEVICE
    return torch.empty(1, device=request.param).device


@pytest.fixture(autouse=True)
def hooks_on_all_modules():
    """A test leaves no hook on all modules of the process: every test after it would be undecided."""
    from torch.nn.modules import module

    yield
    left = [
        each for name, each in vars(module).items() if name.startswith("_global_") and isinstance(each, dict) and each
    ]
    for each in left:
        each.clear()
    assert not left, "this test leaves hooks on all modules"


@pytest.fixture(autouse=True)
def imitation(request):
    """The imitated device is there while a test on it runs, and in no other."""
    name = request.node.callspec.params.get("device", "") if hasattr(request.node, "callspec") else ""
    if not name.startswith("imitated"):
        yield
        return
    import imitated_device

    with imitated_device.imitated(float64="without" not in name):
        yield


@pytest.fixture
def process_group(tmp_path):
    """torch.distributed of this process alone, over gloo; the DistributedDataParallel of a test ends before it does."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    gc.collect()
    dist.destroy_process_group()
