"""The plugin of pytest in a run of its own: what holds passes, what does not fails with the place, both are kept."""

import json
import os
import subprocess
import sys

import pytest
from forks import run_apart

FILE = """
import copy, pytest, torch, conv2attn
from torch import nn

@pytest.fixture
def networks():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    return model, conv2attn.convert(model)

def test_holds(certified, networks):
    assert certified(*networks, input_size=(3, 8, 9)).verdict.value == "holds"
    certified(*networks, input_size=(3, 9, 8))

def test_differs(certified, networks):
    model, network = networks
    with torch.no_grad():
        network[2].weight[0, 0, 0, 0] += 1e-3
    certified(model, network, input_size=(3, 8, 9))
"""


def start(folder, *options):
    """Pytest with the plugin, in a process that has not imported the package; it says on stdout what it found."""
    os.chdir(folder)
    with open("said", "w") as sys.stdout:
        sys.stderr = sys.stdout
        sys.exit(pytest.main(["-p", "conv2attn.testing.plugin", "-q", "--color=no", *options, "test_networks.py"]))


def run(folder, *options):
    """The exit code of the tests in `FILE`, and what was said."""
    (folder / "test_networks.py").write_text(FILE)
    return run_apart(start, folder, *options), (folder / "said").read_text()


def test_a_pair_that_differs_fails_with_its_layer_and_both_certificates_are_kept(tmp_path):
    code, said = run(tmp_path, "--certify", "kept/here")
    assert code == 1, said
    assert "1 failed, 1 passed" in said
    failure = said.partition("FAILURES")[2]
    assert "refuted" in failure
    assert "\n2 " in failure  # the row of the layer
    assert "Traceback" not in failure
    kept = {path.name: json.loads(path.read_text()) for path in (tmp_path / "kept" / "here").iterdir()}
    verdicts = {name: document["verdict"] for name, document in kept.items()}
    assert verdicts == {
        "test_networks.py-test_holds.json": "holds",
        "test_networks.py-test_holds-2.json": "holds",
        "test_networks.py-test_differs.json": "refuted",
    }


def test_without_the_option_nothing_is_written(tmp_path):
    assert "1 failed, 1 passed" in run(tmp_path)[1]
    assert {path.name for path in tmp_path.iterdir()} <= {"test_networks.py", "said", ".pytest_cache", "__pycache__"}


def test_the_plugin_imports_nothing_of_the_package_until_it_is_used():
    code = "import sys, conv2attn.testing.plugin; print([name for name in sys.modules if name in HEAVY])"
    done = subprocess.run(
        [sys.executable, "-c", f"HEAVY = ('torch', 'hypothesis', 'numpy'); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
