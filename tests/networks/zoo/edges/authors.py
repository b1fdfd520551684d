"""Checkpoints of the paper's authors: their formulas, written out here by their keys, give the logits of ours."""

import math

import pytest
import torch
from commands import call
from torch.nn import functional as F

import conv2attn
from conv2attn.errors import CheckpointError
from studies.paper import paper

WIDTH, HEADS, LAYERS, HIDDEN, PATCH, PLACES, CLASSES = 12, 4, 2, 20, 4, 8, 10


def checkpoint(kind, heads=(HEADS, HEADS), dtype=torch.float32):
    """A state dict with the authors' keys and shapes."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape, scale=0.3):
        return (scale * torch.randn(*shape, generator=generator)).to(dtype)

    state = {"attention_mask": torch.tensor(1.0), "mask_embedding": drawn(WIDTH), "cls_embedding": drawn(WIDTH)}
    shapes = {"features_upscale": (WIDTH, 3 * PATCH**2), "classifier": (CLASSES, WIDTH), "pixelizer": (3, WIDTH)}
    for number, count in enumerate(heads):
        layer = f"encoder.layer.{number}."
        shapes[layer + "attention.self.value"] = (WIDTH, count * WIDTH)
        shapes[layer + "attention.output.dense"] = (WIDTH, WIDTH)
        shapes[layer + "intermediate.dense"] = (HIDDEN, WIDTH)
        shapes[layer + "output.dense"] = (WIDTH, HIDDEN)
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            state |= {f"{layer}{norm}.weight": 1 + drawn(WIDTH), f"{layer}{norm}.bias": drawn(WIDTH)}
        own = layer + "attention.self."
        if kind in ("quadratic", "generalised"):
            state[own + "attention_centers"] = drawn(count, 2, scale=2.0)
            spreads = 1 + drawn(count) if kind == "quadratic" else torch.eye(2).to(dtype) + drawn(count, 2, 2)
            state[own + "attention_spreads"] = spreads
            state[own + "R"] = torch.zeros(2, 2, 2, 2, 5)
        else:
            for name in ("row", "col"):
                state[f"{own}{name}_embeddings.weight"] = drawn(2 * PLACES - 1, WIDTH // 2, scale=1.0)
                if "qr" not in kind:
                    state[f"{own}head_keys_{name}.weight"] = drawn(count, WIDTH // 2, scale=1.0)
            state[own + "relative_indices"] = torch.zeros(PLACES, PLACES, dtype=torch.int64)
        if "q" in kind.removeprefix("quadratic"):
            shapes[own + "query"] = (count * WIDTH, WIDTH)
        if "qk" in kind:
            shapes[own + "key"] = (count * WIDTH, WIDTH)
    for name, shape in shapes.items():
        state |= {f"{name}.weight": drawn(*shape), f"{name}.bias": drawn(shape[0])}
    return state


def linear(state, name, tokens):
    return tokens @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def normed(state, name, tokens):
    return F.layer_norm(tokens, (WIDTH,), state[f"{name}.weight"], state[f"{name}.bias"], 1e-12)


def scores_of(state, own, tokens, kind, side):
    """(batch or 1, heads, queries, keys), query and key by row and column."""
    places = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    away = places - places[:, None]
    if kind in ("quadratic", "generalised"):
        spreads, center = state[own + "attention_spreads"], state[own + "attention_centers"]
        root = spreads[:, None, None] * torch.eye(2).to(spreads) if kind == "quadratic" else spreads
        precision = root @ root.transpose(1, 2)
        off = away.to(center) - center[:, None, None]
        return -torch.einsum("hqki,hij,hqkj->hqk", off, precision, off)[None] / 2
    scores = 0.0
    if "qr" not in kind:
        for axis, name in ((0, "col"), (1, "row")):
            keys = state[f"{own}{name}_embeddings.weight"] @ state[f"{own}head_keys_{name}.weight"].T
            scores = scores + keys[away[..., axis] + PLACES - 1].permute(2, 0, 1)[None]
    if kind != "vr":
        query = linear(state, own + "query", tokens).unflatten(-1, (-1, WIDTH)).movedim(2, 1)
    if "qr" in kind:
        tables = [state[f"{own}{name}_embeddings.weight"][away[..., axis] + PLACES - 1]
                  for axis, name in ((0, "row"), (1, "col"))]  # fmt: skip
        scores = scores + torch.einsum("bhqd,qkd->bhqk", query, torch.cat(tables, -1)) / math.sqrt(WIDTH)
    if "qk" in kind:
        key = linear(state, own + "key", tokens).unflatten(-1, (-1, WIDTH)).movedim(2, 1)
        scores = scores + query @ key.transpose(2, 3) / math.sqrt(WIDTH)
    return scores


def logits_of(state, images, kind):
    """The authors' forward pass, from their keys."""
    batch, side = len(images), 32 // PATCH
    pixels = images.permute(0, 2, 3, 1).reshape(batch, side, PATCH, side, PATCH, 3)
    tokens = pixels.permute(0, 1, 3, 2, 4, 5).reshape(batch, side * side, -1)
    tokens = linear(state, "features_upscale", tokens)
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}."
        attention = scores_of(state, layer + "attention.self.", tokens, kind, side).softmax(-1)
        mixed = (attention @ tokens[:, None]).transpose(1, 2).flatten(2)
        output = linear(state, layer + "attention.output.dense", linear(state, layer + "attention.self.value", mixed))
        tokens = normed(state, layer + "attention.output.LayerNorm", output + tokens)
        inner = linear(state, layer + "output.dense", F.gelu(linear(state, layer + "intermediate.dense", tokens)))
        tokens = normed(state, layer + "output.LayerNorm", inner + tokens)
    return linear(state, "classifier", tokens.mean(1))


KINDS = ("quadratic", "generalised", "vr", "qr", "qk+qr", "qk+vr")


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_authors_formulas(tmp_path, kind):
    heads = (3, HEADS) if kind == "generalised" else (HEADS, HEADS)  # pruned
    state = checkpoint(kind, heads, torch.float64)
    torch.save({"epoch": 7, "model_state_dict": state}, tmp_path / "best.checkpoint")
    network = conv2attn.load(tmp_path / "best.checkpoint")
    assert str(network.plan.terms) == ("vr" if kind in ("quadratic", "generalised") else kind)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(network(images), logits_of(state, images, kind), rtol=1e-9, atol=1e-9)


def test_they_go_on_in_heads_prune_and_train(tmp_path):
    torch.save(checkpoint("generalised"), tmp_path / "theirs.pt")
    network = conv2attn.load(tmp_path / "theirs.pt")
    assert len(conv2attn.heads(network, grid=(8, 8)).layers) == LAYERS
    run = call("inspect", tmp_path / "theirs.pt")
    assert "attention-generalised" in run.output
    run = call("prune", tmp_path / "theirs.pt", "-o", tmp_path / "pruned.pt", "--condition", "3", program=paper)
    assert run.exit_code in (0, 3), run.output
    conv2attn.save(network, tmp_path / "ours.pt")
    again = conv2attn.load(tmp_path / "ours.pt")
    assert again.plan == network.plan
    again.train()(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert all(p.grad is not None for p in again.parameters())


@pytest.mark.parametrize("change", ["missing", "more", "shape", "absolute"])
def test_other_keys_are_not_taken_for_theirs(tmp_path, monkeypatch, change):
    monkeypatch.setattr("conv2attn.files.registries.fitting_models", lambda *states: ([], True))
    state = checkpoint("quadratic")
    if change == "missing":
        del state["encoder.layer.1.intermediate.dense.bias"]
    elif change == "shape":
        state["encoder.layer.1.attention.self.value.weight"] = torch.zeros(WIDTH, 7)
    else:
        more = "positional_encoding" if change == "absolute" else "encoder.layer.0.attention.self.gate.weight"
        state[more] = torch.zeros(3, 3, WIDTH)
    torch.save(state, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match="C2A304"):
        conv2attn.load(tmp_path / "net.pt")
