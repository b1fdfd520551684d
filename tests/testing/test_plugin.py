"""The plugin of pytest in a run of its own: what holds passes, what does not fails with the place, both are kept."""

import json
import subprocess
import sys

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


def run(folder, *options):
    (folder / "test_networks.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-p", "conv2attn.testing.plugin", "-q", "--color=no", *options]
    return subprocess.run([*command, "test_networks.py"], cwd=folder, capture_output=True, text=True)


def test_a_pair_that_differs_fails_with_its_layer_and_both_certificates_are_kept(tmp_path):
    done = run(tmp_path, "--certify", "kept/here")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    failure = done.stdout.partition("FAILURES")[2]
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
    assert "1 failed, 1 passed" in run(tmp_path).stdout
    assert {path.name for path in tmp_path.iterdir()} <= {"test_networks.py", ".pytest_cache", "__pycache__"}


def test_the_plugin_imports_nothing_of_the_package_until_it_is_used():
    code = "import sys, conv2attn.testing.plugin; print([name for name in sys.modules if name in HEAVY])"
    done = subprocess.run(
        [sys.executable, "-c", f"HEAVY = ('torch', 'hypothesis', 'numpy'); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
