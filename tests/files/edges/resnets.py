"""ResNets are recognised by torchvision's keys and shapes, and loaded as they were saved."""

from pathlib import Path

import pytest
import torch

from conv2attn import load
from conv2attn.examples import demo_files
from conv2attn.networks.zoo import ResNet, ResNetPlan

TINY = ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=3)


def saved(path: Path, content: object, **options: bool) -> Path:
    torch.save(content, path, **options)
    return path


def resnet_state(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return ResNet(TINY).to(dtype).state_dict()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_resnet_is_loaded_as_it_was_saved(tmp_path, dtype):
    state = resnet_state(dtype)
    network = load(saved(tmp_path / "file.pt", {f"module.{key}": tensor for key, tensor in state.items()}))
    assert network.plan == TINY
    assert not network.training
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert list(network.state_dict()) == list(state)
    for key, tensor in network.state_dict().items():
        assert tensor.dtype == state[key].dtype
        assert torch.equal(tensor, state[key])


def test_a_file_whose_counters_were_halved_with_its_weights_is_loaded(tmp_path):
    state = {key: tensor.half() for key, tensor in resnet_state().items()}
    network = load(saved(tmp_path / "file.pt", state))
    assert network.fc.weight.dtype == torch.float16
    assert network.bn1.num_batches_tracked.dtype == torch.int64


def test_a_file_without_batch_counters_is_loaded(tmp_path):
    state = {key: tensor for key, tensor in resnet_state().items() if "num_batches" not in key}
    network = load(saved(tmp_path / "file.pt", state))
    assert network(torch.zeros(1, 3, 32, 32)).shape == (1, 3)


def test_entries_that_share_memory_in_the_file_do_not_in_the_network(tmp_path):
    state = resnet_state()
    state["bn1.weight"] = state["layer1.0.bn1.weight"]
    network = load(saved(tmp_path / "file.pt", state))
    pointers = [parameter.data_ptr() for parameter in network.parameters()]
    assert len(set(pointers)) == len(pointers)


def test_arch_must_agree(tmp_path):
    path = saved(tmp_path / "file.pt", ResNet(ResNetPlan(width=2, classes=3)).state_dict())
    assert load(path, arch="resnet18").plan.width == 2


def test_the_demo_network_knows_its_images():
    demo = demo_files()
    network = load(demo.model, arch="resnet18")
    assert network.plan == ResNetPlan(width=16, classes=10)
    assert demo.model.stat().st_size < 4_000_000
    assert demo.images.shape == (10, 3, 56, 56)
    assert demo.labels.tolist() == list(range(10))
    assert len(demo.classes) == 10
    with torch.no_grad():
        assert (network(demo.images).argmax(1) == demo.labels).sum() >= 9
