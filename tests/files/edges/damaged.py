"""Files that are damaged, lie, or name code are refused in one clear sentence; the whole one is read bit for bit."""

import random
import warnings
from pathlib import Path

import pytest
import torch
from files.edges.resnets import saved
from torch import nn

from conv2attn.errors import CheckpointError
from conv2attn.files import contents_of, prefix_readings, read_dict, state_in

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([0.5, float("nan")])}


def read_tensors(path: Path) -> dict:
    """The state dict in a file, without the prefixes that all names share."""
    state = state_in(contents_of(path).content)
    if state is None:
        raise CheckpointError("C2A303", f"{path} holds a dict, but not one of names and tensors", "Save it again.")
    return list(prefix_readings(state))[-1].tensors


def same_bits(one: dict, other: dict) -> bool:
    return list(one) == list(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        for a, b in zip(one.values(), other.values(), strict=True)
    )


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("wrapper", [None, "state_dict", "model_state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_tensors_come_back_bit_for_bit(tmp_path, legacy, wrapper, prefix):
    state = {prefix + key: tensor for key, tensor in STATE.items()}
    content = state if wrapper is None else {"epoch": 3, wrapper: state}
    path = saved(tmp_path / "file.pt", content, _use_new_zipfile_serialization=not legacy)
    assert same_bits(read_tensors(path), STATE)


@pytest.mark.parametrize("module", [False, True])
def test_a_warning_of_torch_refuses_no_file(tmp_path, monkeypatch, module):
    """Tests turn warnings into errors, as some users do."""
    network = nn.Linear(3, 2)
    read, path = torch.load, saved(tmp_path / "file.pt", network if module else STATE)

    def warned(*arguments, **options):
        warnings.warn("this kind of tensor is new", UserWarning, stacklevel=2)
        return read(*arguments, **options)

    monkeypatch.setattr(torch, "load", warned)
    if module:
        assert torch.equal(contents_of(path).network.weight, network.weight)
    else:
        assert same_bits(read_tensors(path), STATE)


def test_a_prefix_that_not_all_keys_have_is_kept(tmp_path):
    state = {"module.weight": STATE["weight"], "bias": STATE["bias"]}
    assert same_bits(read_tensors(saved(tmp_path / "file.pt", state)), state)


def test_parameters_and_attributes_of_tensors_are_not_carried_over(tmp_path):
    parameter = nn.Parameter(torch.ones(2))
    parameter.clone = "not callable"
    tensor = read_tensors(saved(tmp_path / "file.pt", {"weight": parameter}))["weight"]
    assert type(tensor) is torch.Tensor
    assert torch.equal(tensor.clone(), torch.ones(2))


def test_nested_content_of_tensors_and_plain_values_is_read(tmp_path):
    content = {"format": "x/1", "plan": {"depths": (1, 2), "name": None}, "tensors": [STATE["weight"], True, 0.5]}
    back = read_dict(saved(tmp_path / "file.pt", content))
    assert back["plan"] == content["plan"]
    assert torch.equal(back["tensors"][0], STATE["weight"])


@pytest.mark.rotated
@pytest.mark.parametrize("part", range(4))
def test_every_flipped_bit_is_found_or_harmless(tmp_path, part):
    """A quarter of the bytes in each part."""
    path, generator = saved(tmp_path / "file.pt", STATE), random.Random(0)
    good, found = path.read_bytes(), 0
    flips = [(position, generator.randrange(8)) for position in range(len(good))]
    first = good.index(
        b"PK\1\2"
    )  # sizes and places of entries have no checksum: every bit is tried of one and of the end
    second, last = good.index(b"PK\1\2", first + 1), good.rindex(b"PK\5\6")
    flips += [(position, bit) for position in (*range(first, second), *range(last, len(good))) for bit in range(8)]
    flips = flips[part::4]
    for position, bit in flips:
        bad = bytearray(good)
        bad[position] ^= 1 << bit
        path.write_bytes(bad)
        try:
            assert same_bits(read_tensors(path), STATE), f"bit {bit} of byte {position}"
        except CheckpointError:
            found += 1
    assert found > len(flips) / 4


@pytest.mark.rotated
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("legacy", [False, True])
def test_every_truncation_is_found(tmp_path, legacy, part):
    """A quarter of the lengths in each part."""
    path = saved(tmp_path / "file.pt", STATE, _use_new_zipfile_serialization=not legacy)
    good = path.read_bytes()
    for length in range(part, len(good), 4):
        path.write_bytes(good[:length])
        with pytest.raises(CheckpointError, match=r"C2A30[23]"):
            read_dict(path)


def test_sizes_are_capped_before_reading(tmp_path, monkeypatch):
    path = saved(tmp_path / "file.pt", STATE)
    with pytest.raises(CheckpointError, match=f"C2A307 .* has {path.stat().st_size:,} bytes, more than 100"):
        read_dict(path, limit=100)
    monkeypatch.setattr("conv2attn.files.kinds.LARGEST_PICKLE", 10)
    with pytest.raises(CheckpointError, match=r"C2A307 .* data\.pkl has"):
        read_dict(path)
