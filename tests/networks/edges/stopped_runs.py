"""Reading a network: a run that ends behind the last attention of a layer reads what a whole run does, and leaves
nothing behind."""

from collections import Counter, defaultdict
from contextlib import nullcontext
from pkgutil import resolve_name

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn.span import reads_of

READING = "conv2attn.networks.reading"
WATCH = resolve_name(f"{READING}.watch.Watch")
PASS = resolve_name(f"{READING}.phase.ReadingPass")
RUN_UNTIL = resolve_name(f"{READING}.stopped_runs.run_until")
LAYERS, IMAGES = 3, torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
SET = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default device": (lambda: str(torch.get_default_device()), torch.set_default_device, "cpu:0"),
    "threads": (torch.get_num_threads, torch.set_num_threads, 3),
    "precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1),
    "anomaly": (torch.is_anomaly_enabled, torch.set_anomaly_enabled, True),
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled, False),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on), True),
    "flash": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, False),
}
"""Settings of torch that a network may change while it runs: what reads and what sets each, and another value."""
RAN = Counter()
"""How often each block ran in float32, as the network of the caller does."""


class Block(nn.Module):
    """Attention of two heads."""

    def __init__(self, kind, place):
        super().__init__()
        self.turned = False
        self.kind, self.place, self.qkv, self.proj = kind, place, nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, tokens):
        RAN[self.place] += tokens.dtype == torch.float32
        query, key, value = self.qkv(tokens).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        if self.kind == "turns keys":
            key, value = (x.flip(2) if self.turned else x for x in (key, value))
        if self.kind == "mixed heads":
            weights = (query @ key.mT).softmax(-1)
            mixed = (weights + 0.1 * weights.flip(1)) @ value
        elif self.kind == "catches everything":
            try:
                mixed = F.scaled_dot_product_attention(query, key, value)
            except BaseException:
                mixed = F.scaled_dot_product_attention(query.flip(0), key, value)
        elif self.kind == "raises its own error":
            try:
                mixed = F.scaled_dot_product_attention(query, key, value)
            except BaseException as error:
                raise ValueError("no kernel") from error
        else:
            mixed = F.scaled_dot_product_attention(query, key, value)
        return tokens + self.proj(mixed.transpose(1, 2).flatten(2))


class Network(nn.Module):
    """4x4 tokens and three blocks; what is kept while it runs is a part of the next result unless it is emptied."""

    def __init__(self, kind=""):
        super().__init__()
        self.kind, self.kept, self.running, self.inside = kind, [], False, [[]]
        self.register_buffer("total", torch.zeros(()))
        self.stem, self.blocks = nn.Conv2d(3, 8, 2, 2), nn.ModuleList(Block(kind, at) for at in range(LAYERS))

    def forward(self, images):
        if self.kind == "image by image" and len(images) > 1:
            return torch.cat([self(each[None]) for each in images])
        tokens = self.stem(images).flatten(2).mT
        if self.kind == "keeps":
            tokens = tokens + len(self.kept) + self.running
        if self.kind == "keeps inside":
            tokens = tokens + len(self.inside[0])
        self.running, turned = True, bool(self.inside[0])
        if self.kind in SET:
            now, put, value = SET[self.kind]
            before = now()
            put(value)
        for block in self.blocks:
            block.turned = turned
            self.kept.append(len(tokens))
            self.inside[0].append(len(tokens))
            if self.kind == "writes":
                self.total += 1
            tokens = block(tokens)
        if self.kind == "writes":
            self.total.zero_()
        self.inside[0].clear()
        self.kept.clear()
        self.running = False
        if self.kind in SET:
            put(before)
        return tokens.mean(1)


def network(kind):
    torch.manual_seed(0)
    return Network(kind).eval()


def whole(enough, network, see, run, marked=None):
    run(WATCH(network, see, marked=marked))


def read(kind, monkeypatch, run_until=None):
    """The attention and the residual of each layer, and the network afterwards."""
    monkeypatch.setattr(f"{READING}.phase.AT_ONCE", 1)
    for room in ("phase", "replay") if run_until is not None else ():
        monkeypatch.setattr(f"{READING}.{room}.run_until", run_until)
    asked = network(kind)
    records = list(reads_of(asked, IMAGES))
    assert [each.name for each in records if each.unread] == []
    return {each.name: (each.attention, each.replay) for each in records}, asked


def alike(ours, others):
    """Whether two readings are the same numbers."""
    pairs = [(ours[name], others[name]) for name in ours]
    return all(mine.shape == other.shape and torch.equal(mine, other) for (mine, _), (other, _) in pairs) and all(
        mine == other for (_, mine), (_, other) in pairs
    )


KINDS = ["", "mixed heads", "image by image", "keeps", "keeps inside", "turns keys", "writes", "catches everything"]
KINDS += ["raises its own error"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_is_that_of_whole_runs(kind, monkeypatch):
    ours, asked = read(kind, monkeypatch)
    assert alike(ours, read(kind, monkeypatch, whole)[0])
    assert len(ours) == LAYERS
    assert (asked.kept, asked.running, float(asked.total)) == ([], False, 0.0)
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in asked.modules())


def test_a_run_that_ends_at_the_first_attention_is_noticed(monkeypatch):
    def ended_early(enough, *arguments):
        RUN_UNTIL(lambda: True, *arguments)

    with pytest.raises(AssertionError, match="blocks"):
        read("", monkeypatch, ended_early)


def test_a_run_that_ends_one_attention_early_is_noticed(monkeypatch):
    """Planted: each part of the images counts as much as the first, of two images; the second has three."""
    expected = read("image by image", monkeypatch, whole)[0]
    monkeypatch.undo()
    marks = PASS.marks

    def planted(self, batch):
        return defaultdict(list, {name: each[:2] for name, each in marks(self, batch).items()})

    monkeypatch.setattr(f"{READING}.phase.ReadingPass.marks", planted)
    assert not alike(read("image by image", monkeypatch)[0], expected)


def ends_unnoticed(monkeypatch):
    """Planted: whatever else is seen in a run that ends is taken for what a whole run has."""
    monkeypatch.setattr(f"{READING}.phase.mark", lambda attention: 0.0)


def test_attributes_that_are_left_are_noticed(monkeypatch):
    expected = read("keeps", monkeypatch, whole)[0]
    monkeypatch.undo()
    ends_unnoticed(monkeypatch)
    monkeypatch.setattr(f"{READING}.stopped_runs.attributes_kept", lambda network, ended: nullcontext())
    ours, asked = read("keeps", monkeypatch)
    assert not alike(ours, expected)
    assert asked.kept


def test_what_is_left_inside_an_attribute_is_noticed(monkeypatch):
    expected = read("keeps inside", monkeypatch, whole)[0]
    monkeypatch.undo()
    ends_unnoticed(monkeypatch)
    ours, asked = read("keeps inside", monkeypatch)
    assert not alike(ours, expected)
    assert asked.inside != [[]]


def test_what_is_left_in_tensors_is_noticed(monkeypatch):
    """Attention does not tell: no block reads what is written."""
    monkeypatch.setattr(f"{READING}.phase.versions", lambda network: [])
    assert float(read("writes", monkeypatch)[1].total)


@pytest.fixture
def settings():
    """The settings of torch before the test, which are put back."""
    before = {kind: now() for kind, (now, _, _) in SET.items()}
    yield before
    for kind, value in before.items():
        SET[kind][1](value)
    torch.set_default_device(None)


@pytest.mark.parametrize("kind", SET)
def test_settings_of_torch_that_a_network_resets_are_put_back(kind, monkeypatch, settings):
    ours, _ = read(kind, monkeypatch)
    assert {kind: now() for kind, (now, _, _) in SET.items()} == settings
    assert alike(ours, read(kind, monkeypatch, whole)[0])


@pytest.mark.parametrize("kind", sorted(SET.keys() - {"gradients"}))
def test_a_setting_of_torch_that_is_left_is_noticed(kind, monkeypatch, settings):
    monkeypatch.setattr(f"{READING}.stopped_runs.SETTINGS", ())
    read(kind, monkeypatch)
    assert SET[kind][0]() != settings[kind]


def test_a_setting_of_torch_that_a_whole_run_leaves_stays(monkeypatch, settings):
    monkeypatch.setattr(f"{READING}.phase.may_end", lambda network: False)
    monkeypatch.setattr(f"{READING}.stopped_runs.may_end", lambda network: False)
    asked = network("")
    asked.register_forward_hook(lambda *_: torch.set_default_dtype(torch.float64))
    list(reads_of(asked, IMAGES))
    assert torch.get_default_dtype() == torch.float64


def test_settings_are_read_where_precision_is_that_of_one_backend(monkeypatch):
    """Torch then refuses to name one precision."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with pytest.raises(RuntimeError, match="precision"):
            torch.get_float32_matmul_precision()
        assert len(read("", monkeypatch)[0]) == LAYERS
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def ran(monkeypatch, run_until=None):
    """How often each block runs on images of the caller."""
    RAN.clear()
    read("", monkeypatch, run_until)
    return [RAN[place] for place in range(LAYERS)]


def test_runs_end_behind_the_layer_that_they_are_for(monkeypatch):
    """Two runs for what there is and is drawn; then for each half of the images one for how often, and one a layer."""
    assert ran(monkeypatch) == [2 + 2 + 2 * 3, 2 + 2 + 2 * 2, 2 + 2 + 2 * 1]
    assert ran(monkeypatch, whole) == [2 + 2 + 2 * 3] * 3


def test_networks_with_hooks_run_as_a_whole(monkeypatch):
    """Hooks of the caller may come in pairs, of which torch would not run the second."""
    monkeypatch.setattr(f"{READING}.phase.AT_ONCE", 1)
    asked, inside = network(""), []
    asked.register_forward_pre_hook(lambda *_: inside.append(1))
    asked.register_forward_hook(lambda *_: inside.pop() and None)
    list(reads_of(asked, IMAGES))
    assert not inside
