"""Training: a continued run is the unbroken one, several processes are one, and every kind learns."""

import os
import signal
import socket
import time

import pytest
import torch
from forks import FORKS
from lab.cases import KINDS, command, quiet, small, without_times

import conv2attn
from conv2attn.lab.training import Training, TrainingRun, train
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.networks import attention_layers


def state_of(run):
    """The weights of a run's network."""
    return conv2attn.load(run.network).state_dict()


def same(first, second):
    """Whether two runs came to the same numbers, bit for bit."""
    one, two = state_of(first), state_of(second)
    return (
        one.keys() == two.keys()
        and all(torch.equal(one[key], two[key]) for key in one)
        and without_times(first) == without_times(second)
        and all((first.positions()[key] == second.positions()[key]).all() for key in first.positions())
    )


@pytest.mark.parametrize(
    ("kind", "optimiser", "stop"), [("quadratic", "sgd", 4), *((kind, "adamw", 3) for kind in KINDS)]
)
def test_resumed_equals_unbroken(tmp_path, kind, optimiser, stop):
    recipe = small(kind, optimiser=optimiser, learning_rate=0.01, dropout=0.5)
    whole = train(recipe, tmp_path / "whole", report=quiet)
    broken = train(recipe, tmp_path / "broken", steps=stop, report=quiet)
    assert not broken.finished
    again = train(None, broken.folder, report=quiet)
    assert again.finished
    assert same(whole, again)


def test_another_seed_is_another_run(tmp_path):
    runs = [train(small("quadratic", seed=seed), tmp_path / str(seed), report=quiet) for seed in (0, 1)]
    assert not same(*runs)


def test_interrupted_run_writes_a_checkpoint_and_continues(tmp_path):
    recipe = small("quadratic", epochs=400, learning_rate=0.01)
    options = ["--width", "16", "--heads", "4", "--layers", "2", "--hidden", "24", "--learning-rate", "0.01"]
    options += ["--data", "digits", "--train-images", "40", "--batch", "10", "--epochs", "400"]
    folder, said = tmp_path / "run", tmp_path / "said"
    process = FORKS.Process(target=command, args=(["quadratic", *options, "-o", str(folder)], said))
    process.start()
    deadline = time.monotonic() + 60
    while not (folder / "metrics.csv").is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    told = said.read_text()
    assert process.exitcode == 130, told
    assert "--resume" in told
    assert "Traceback" not in told
    step = TrainingRun(folder).read_checkpoint()["progress"]["step"]
    assert 0 < step < 1600
    limit = {"steps": 10, "report": quiet}
    again = train(None, folder, **limit)
    whole = train(recipe, tmp_path / "whole", steps=step + 10, report=quiet)
    ours, theirs = (TrainingRun(f).read_checkpoint()["network"] for f in (again.folder, whole.folder))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_two_processes_are_one_with_the_doubled_batch(tmp_path):
    """The variables of the environment are those that torchrun sets."""
    recipe = small("quadratic", dropout=0.0, images=200, batch=20, precision="float64", positions=None)
    one = train(recipe, tmp_path / "one", report=quiet)
    options = ["--width", "16", "--heads", "4", "--layers", "2", "--hidden", "24", "--dropout", "0"]
    options += ["--data", "digits", "--train-images", "200", "--batch", "20", "--epochs", "2", "--precision", "float64"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    arguments = ["quadratic", *options, "-o", str(tmp_path / "two")]
    ranks = [
        FORKS.Process(target=command, args=(arguments, tmp_path / rank, {**group, "RANK": rank, "LOCAL_RANK": rank}))
        for rank in "01"
    ]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(120)
    assert [each.exitcode for each in ranks] == [0, 0], [(tmp_path / rank).read_text() for rank in "01"]
    two = TrainingRun(tmp_path / "two")
    assert two.recipe == one.recipe
    assert one.metrics()[-1]["step"] == 20
    start, first, second = (r for r in (one.positions(), state_of(one), state_of(two)))
    assert any((centers[0] != centers[-1]).any() for centers in start.values())
    for key in first:
        torch.testing.assert_close(second[key], first[key], rtol=1e-9, atol=1e-11)
    for ours, theirs in zip(without_times(one), without_times(two), strict=True):
        assert theirs == pytest.approx(ours, rel=1e-9)


@pytest.fixture
def no_files_of_epochs(monkeypatch):
    """They cost more than the steps of an epoch, and are those of other tests."""
    monkeypatch.setattr(Training, "write_files", lambda training: None)


@pytest.mark.rotated
@pytest.mark.usefixtures("no_files_of_epochs")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns_its_images(tmp_path, kind):
    rate = 2e-3 if kind == "resnet" else 1e-2
    still = {"crop_padding": 0, "mirror": False, "dropout": 0.0, "weight_decay": 0.0}
    sizes = {"width": 16 if kind == "resnet" else 32, "epochs": 30 if kind == "resnet" else 60}
    recipe = small(kind, optimiser="adamw", learning_rate=rate, images=10, batch=10, **sizes, **still)
    rows = train(recipe, tmp_path / "run", report=quiet).read_checkpoint()["progress"]["rows"]
    assert len(rows) == recipe.epochs
    assert rows[0]["train_loss"] > 1
    assert rows[-1]["train_loss"] < 0.05
    assert rows[-1]["train_accuracy"] == 1


@pytest.mark.usefixtures("no_files_of_epochs")
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_keeps_weights_in_float32_and_learns(tmp_path, precision):
    recipe = small("quadratic", precision=precision, epochs=12, optimiser="adamw", learning_rate=1e-2, crop_padding=0)
    state = train(recipe, tmp_path / "run", report=quiet).read_checkpoint()
    assert {tensor.dtype for tensor in state["network"].values()} == {torch.float32}
    losses = [row["train_loss"] for row in state["progress"]["rows"]]
    assert losses[-1] < 0.7 * losses[0]


def test_no_step_makes_a_sharpness_negative(tmp_path):
    run = train(small("quadratic", learning_rate=1.0, epochs=4, schedule="constant"), tmp_path / "run", report=quiet)
    encodings = [layer.encoding for layer in attention_layers(conv2attn.load(run.network)).values()]
    assert all(encoding.family.name == "quadratic" for encoding in encodings)
    assert min(encoding.alpha.min() for encoding in encodings) >= 0


def test_sharpness_takes_the_gradient_of_its_width():
    from conv2attn.lab.training import Widths

    encoding = Encoding.of("quadratic", torch.zeros(3, 2), torch.tensor([0.5, 2.0, 8.0]))
    widths = Widths(MultiHeadSelfAttention(1, 1, encoding))
    (encoding.alpha**2).sum().backward()
    widths.take_gradients()
    width = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    ((width**2 / 2) ** 2).sum().backward()
    torch.testing.assert_close(widths.widths[0].detach(), width.detach())
    torch.testing.assert_close(widths.widths[0].grad, width.grad)
    assert encoding.alpha.grad is None
