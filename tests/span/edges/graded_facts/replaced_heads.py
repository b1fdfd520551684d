"""What replacing a head changes is what an independent loop over a small transformer says."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn import heads
from conv2attn.networks.reading import phase
from conv2attn.span.graded_facts import forced_runs

EXAMPLES = Path(__file__).parents[4] / "examples"
SIDES = (3, 4)
HEADS, WIDTH = 2, 12
COUNT = 1 + SIDES[0] * SIDES[1]


class Block(nn.Module):
    """Attention by hand, fused, with heads before images, or that of torch's module."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.qkv.weight.data *= 3
        if "module" in how:
            self.module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
            self.module.in_proj_weight, self.module.in_proj_bias = self.qkv.weight, self.qkv.bias
            self.module.out_proj.weight, self.module.out_proj.bias = self.proj.weight, self.proj.bias

    def forward(self, tokens):
        if "module" in self.how:
            return self.module(tokens, tokens, tokens, need_weights="weights" in self.how)[0]
        query, key, value = self.qkv(tokens).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.how == "by hand":
            mixed = torch.softmax(query @ key.mT / (WIDTH // HEADS) ** 0.5, -1) @ value
        elif self.how == "heads first":
            mixed = F.scaled_dot_product_attention(*(each.transpose(0, 1) for each in (query, key, value)))
            mixed = mixed.transpose(0, 1)
        else:
            mixed = F.scaled_dot_product_attention(query, key, value)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """A class token, 3x4 patches, and two blocks."""

    def __init__(self, how="fused"):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, WIDTH, 4, 4), nn.ModuleList([Block(how), Block(how)])
        self.extra, self.at = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, COUNT, WIDTH))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, image):
        tokens = self.stem(image).flatten(2).mT
        tokens = torch.cat([self.extra.expand(len(image), -1, -1), tokens], 1) + self.at
        for block in self.blocks:
            tokens = tokens + block(tokens)
        return self.head(tokens.mean(1))


def by_loops(network, image, replaced=None):
    """The output for one image, and the attention of all blocks and heads; `replaced` are maps by block and head."""
    tokens = torch.cat([network.extra[0], network.stem(image[None])[0].flatten(1).T]) + network.at[0]
    every = []
    for number, block in enumerate(network.blocks):
        size = WIDTH // HEADS
        joined, projected = [], tokens @ block.qkv.weight.T + block.qkv.bias
        for head in range(HEADS):
            query, key, value = (projected[:, (i * HEADS + head) * size :][:, :size] for i in range(3))
            scores = query @ key.T / size**0.5
            scores = (scores - scores.max(1, keepdim=True).values).exp()
            weights = scores / scores.sum(1, keepdim=True)
            every.append(weights)
            weights = (replaced or {}).get((number, head), weights)
            joined.append(weights @ value)
        tokens = tokens + torch.cat(joined, 1) @ block.proj.weight.T + block.proj.bias
    return network.head(tokens.mean(0)), every


def stand_in(mean, by, reach=9):
    """The replacement of a head, pair by pair; by position, that of displacements up to `reach` along each axis."""
    if by == "mean":
        return mean
    if by == "uniform":
        result = mean.clone()
        result[1:, 1:] = mean[1:, 1:].sum(1, keepdim=True) / (COUNT - 1)
        return result
    cells = list(itertools.product(*map(range, SIDES)))
    sums = {}
    for (q, at), (k, to) in itertools.product(enumerate(cells, 1), repeat=2):
        sums.setdefault((to[0] - at[0], to[1] - at[1]), []).append(float(mean[q, k]))
    peak = max(sums, key=lambda away: sum(sums[away]))
    result = mean.clone()
    for q, at in enumerate(cells, 1):
        row = torch.zeros(COUNT, dtype=mean.dtype)
        for k, to in enumerate(cells, 1):
            away = (to[0] - at[0], to[1] - at[1])
            near = tuple(min(max(a + d, 0), n - 1) for a, d, n in zip(at, peak, SIDES, strict=True))
            inside = max(map(abs, away)) <= reach
            row[k] = inside * sum(sums[away]) / len(sums[away]) if by == "position" else float(to == near)
        result[q, 1:] = row[1:] / row.sum() * mean[q, 1:].sum()
    return result


def moments(values):
    """The mean of some numbers, and its standard error."""
    mean, count = sum(values) / len(values), len(values)
    return mean, (sum((x - mean) ** 2 for x in values) / (count - 1) / count) ** 0.5


def agrees(effect, network, images, replaced, labels=None):
    """Asserts that an effect is that of maps by block and head, image by image."""
    moved, losses, right = [], [], []
    for number, image in enumerate(images[1::2]):
        plain, forced = by_loops(network, image)[0], by_loops(network, image, replaced)[0]
        moved.append(float((forced - plain).norm() / plain.norm()))
        if labels is not None:
            label = labels[1::2][number]
            losses.append(float((plain.softmax(0)[label] / forced.softmax(0)[label]).log()))
            right.append(float(forced.argmax() == label) - float(plain.argmax() == label))
    wanted = {"change": moved} if labels is None else {"change": moved, "loss": losses, "accuracy": right}
    for name, values in wanted.items():
        mean, error = moments(values)
        assert getattr(effect, name) == pytest.approx(mean, rel=1e-3, abs=1e-6)
        assert getattr(effect, f"{name}_error") == pytest.approx(error, rel=1e-3, abs=1e-6)


def mean_maps(network, images, block, head, by):
    """The replacement of a head, from every other image."""
    runs = [by_loops(network, image)[1][block * HEADS + head] for image in images[::2]]
    return stand_in(torch.stack(runs).mean(0), by)


@pytest.fixture(scope="module")
def images():
    return torch.randn(7, 3, 12, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.rotated
@torch.no_grad()
@pytest.mark.parametrize("how", ["by hand", "fused", "module", "module with weights"])
@pytest.mark.parametrize("by", ["position", "shift", "mean", "uniform"])
def test_replacing_a_head_changes_what_a_loop_says(by, how, images):
    torch.manual_seed(0)
    network = Transformer(how).eval()
    before = network(images)
    report = heads(network, images, replace=by)
    assert torch.equal(network(images), before)
    runs = [by_loops(network, image)[1] for image in images[::2]]
    for block, head in itertools.product(range(2), range(HEADS)):
        mean = torch.stack([run[block * HEADS + head] for run in runs]).mean(0)
        replaced = report.layers[block].heads[head].replaced
        assert replaced.by == by
        for kind, effect in ((by, replaced.effect), ("uniform", replaced.uniform)):
            agrees(effect, network, images, {(block, head): stand_in(mean, kind)})
            assert effect.change > 1e-3
            assert (effect.loss, effect.accuracy) == (None, None)


class Reordered(Transformer):
    """Tokens in another order than the grid's."""

    def forward(self, image):
        tokens = (self.stem(image).flatten(2).mT)[:, torch.arange(11, -1, -1)]
        tokens = torch.cat([self.extra.expand(len(image), -1, -1), tokens], 1) + self.at
        for block in self.blocks:
            tokens = tokens + block(tokens)
        return self.head(tokens.mean(1))


def test_a_layer_in_another_order_is_measured_but_not_replaced(images):
    torch.manual_seed(0)
    report = heads(Reordered().eval(), images, replace="position")
    assert "not replaced: its tokens are not in the order of its grid" in " ".join(str(report).split())
    for layer in report.layers:
        assert any("not in the order" in note for note in layer.notes)
        assert layer.heads
        assert all(head.replaced is None for head in layer.heads)


def test_heads_that_stand_where_images_would_are_not_replaced(images):
    """Planted: as many heads as images are measured, so that shapes do not tell one from the other."""
    torch.manual_seed(0)
    for layer in heads(Transformer("heads first").eval(), images[: 2 * HEADS], replace="mean").layers:
        assert len(layer.heads) == HEADS
        assert all(head.replaced is None for head in layer.heads)


class Rounded(Transformer):
    """Attention of as many images at once differs by more than float32 rounds, as that of a deep network may."""

    def forward(self, image):
        return super().forward(image * (1 + 1e-2 * len(image)))


def test_a_layer_in_the_order_of_its_grid_is_replaced_however_runs_round(images):
    torch.manual_seed(0)
    for layer in heads(Rounded().eval(), images, replace="mean").layers:
        assert all(head.replaced is not None for head in layer.heads)


def test_images_of_a_shuffled_loader_are_drawn_once(images):
    torch.manual_seed(0)
    network = Transformer().eval()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images), 3, shuffle=True)
    for layer in heads(network, loader, replace="position").layers:
        assert all(head.replaced is not None for head in layer.heads)


@torch.no_grad()
def test_named_heads_are_replaced_at_once_beside_as_many_at_random(images):
    torch.manual_seed(0)
    network, labels = Transformer().eval(), [0, 3, 1, 4, 2, 0, 1]
    named = {"blocks.0": [1], "blocks.1": [0, 0]}
    report = heads(network, images, replace="position", replaced_heads=named, labels=labels)
    assert [[each.replaced is not None for each in layer.heads] for layer in report.layers] == [
        [False, True],
        [True, False],
    ]
    every = {
        (block, head): mean_maps(network, images, block, head, "position")
        for block, head in itertools.product(range(2), range(HEADS))
    }
    together = report.together
    assert [(each.layer, each.head) for each in together.heads] == [("blocks.0", 1), ("blocks.1", 0)]
    agrees(together.effect, network, images, {key: every[key] for key in ((0, 1), (1, 0))}, labels)
    agrees(report.layers[0].heads[1].replaced.effect, network, images, {(0, 1): every[0, 1]}, labels)
    even = {key: mean_maps(network, images, *key, "uniform") for key in ((0, 1), (1, 0))}
    agrees(together.uniform, network, images, even, labels)
    generator, drawn = torch.Generator().manual_seed(together.seed), []
    for _ in range(together.draws):
        chosen = [list(every)[place] for place in torch.randperm(4, generator=generator)[:2].tolist()]
        pairs = [
            (by_loops(network, x)[0], by_loops(network, x, {k: every[k] for k in chosen})[0]) for x in images[1::2]
        ]
        drawn.append(sum(float((b - a).norm() / a.norm()) for a, b in pairs) / 3)
    mean, error = moments(drawn)
    assert together.random.change == pytest.approx(mean, rel=1e-3)
    assert together.random.change_error == pytest.approx(error, rel=1e-3)
    assert "2 heads at random (10 draws)" in report.to_text()


def test_all_heads_have_no_random_ones_beside_them(images):
    network = Transformer().eval()
    named = {"blocks.0": [0, 1], "blocks.1": [0, 1]}
    assert heads(network, images, replace="mean", replaced_heads=named).together.random is None
    assert heads(network, images, replace="mean").together is None


@torch.no_grad()
def test_the_kind_content_is_decided_by_the_mean_in_place_of_the_head(images):
    torch.manual_seed(1)
    network = Transformer().eval()
    for block in network.blocks:
        block.qkv.weight.data[: 2 * WIDTH] *= 1.5
    network.blocks[1].qkv.weight.data[-WIDTH // 2 :] *= 1e-9  # head 1 of block 1 attends to nothing that differs
    plain, replaced = heads(network, images), heads(network, images, replace="position")
    kinds = {head.kind for layer in plain.layers for head in layer.heads}
    assert "content" not in kinds
    assert "varies with the image" in kinds
    for block, head in itertools.product(range(2), range(HEADS)):
        before, after = (report.layers[block].heads[head] for report in (plain, replaced))
        if before.kind not in ("varies with the image", "mixed"):
            assert after.kind == before.kind
            continue
        if (block, head) == (1, 1):
            assert (after.replaced.lost, after.kind) == (None, before.kind)
            continue
        changes = []
        for kind in ("mean", "uniform"):
            forced = {(block, head): mean_maps(network, images, block, head, kind)}
            pairs = [(by_loops(network, x)[0], by_loops(network, x, forced)[0]) for x in images[1::2]]
            changes.append(sum(float((b - a).norm() / a.norm()) for a, b in pairs))
        assert after.replaced.lost == pytest.approx(changes[0] / changes[1], rel=1e-3)
        assert (after.kind == "content") == (changes[0] >= changes[1] / 2)
    assert "content" in {head.kind for layer in replaced.layers for head in layer.heads}


@torch.no_grad()
def test_heads_of_layers_of_this_project_are_replaced():
    """The change by uniform attention in one head is (U - A_h) x M_h^T, added by a hook; its mean changes nothing."""
    network = conv2attn.load(EXAMPLES / "attention-learned.pt").eval()
    pictures = torch.randn(6, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    found = {
        by: heads(network, pictures, replace=by, only=["blocks.1.*"]).layers[0].heads for by in ("mean", "uniform")
    }
    layer = network.blocks[1].attention
    for number, own in enumerate(layer.attention(sides=(4, 4))[0]):

        def moved(module, args, output, number=number, own=own):
            tokens = args[0].flatten(2).mT
            return output + ((1 / 16 - own) @ tokens @ module.weights.dense()[number].T).mT.reshape(output.shape)

        plain = network(pictures[1::2])
        handle = layer.register_forward_hook(moved)
        forced = network(pictures[1::2])
        handle.remove()
        expected = ((forced - plain).norm(dim=-1) / plain.norm(dim=-1)).mean()
        assert found["uniform"][number].replaced.effect.change == pytest.approx(float(expected), rel=1e-3)
        assert found["mean"][number].replaced.effect.change < 1e-5


def sizes_of_runs(network):
    """Numbers of images of the runs in float32, which grow; copies in float64 are asked where tokens lie."""
    sizes = []
    network.head.register_forward_hook(
        lambda module, given, output: sizes.append(len(output)) if output.dtype == torch.float32 else None
    )
    return sizes


@pytest.mark.parametrize("at_once", [1, 2**28])
def test_as_many_images_run_at_once_as_memory_allows_with_the_same_effects(at_once, images, monkeypatch):
    torch.manual_seed(0)
    network = Transformer().eval()
    wanted = [head.replaced for layer in heads(network, images, replace="mean").layers for head in layer.heads]
    monkeypatch.setattr(forced_runs, "AT_ONCE", at_once)
    runs, sizes = forced_runs.ForcedRuns(network, images[::2], images[1::2], None), sizes_of_runs(network)
    mean = runs.means({"blocks.0": None})
    assert sizes == ([2, 2] if at_once == 1 else [4])
    assert list(mean) == ["blocks.0"]
    sizes.clear()
    runs.outputs({})
    assert sizes == [3]
    effects = [head.replaced for layer in heads(network, images, replace="mean").layers for head in layer.heads]
    for one, other in zip(wanted, effects, strict=True):
        assert one.effect.change == pytest.approx(other.effect.change, rel=1e-4, abs=1e-6)


def test_no_more_than_one_layer_is_kept(images, monkeypatch):
    """The planted error: maps of all layers are measured at once."""
    network, asked = Transformer().eval(), []
    means = forced_runs.ForcedRuns.means
    monkeypatch.setattr(
        forced_runs.ForcedRuns, "means", lambda self, wanted: asked.append([*wanted]) or means(self, wanted)
    )
    heads(network, images, replace="mean")
    assert asked == [["blocks.0"], ["blocks.1"]]


def test_the_command_takes_heads_and_labels(images, tmp_path):
    torch.manual_seed(0)
    network, labels = Transformer().eval(), [0, 3, 1, 4, 2, 0, 1]
    torch.save(network.state_dict(), tmp_path / "network.pt")
    np.save(tmp_path / "images.npy", images.numpy())
    table = "file,label\n" + "".join(f"{place},{label}\n" for place, label in reversed([*enumerate(labels)]))
    (tmp_path / "labels.csv").write_text(table)
    asked = ["heads", tmp_path / "network.pt", "--inputs", tmp_path / "images.npy", "--replace", "mean"]
    asked += ["--arch", f"{__file__}:Transformer", "--labels", tmp_path / "labels.csv"]
    asked += ["--heads", "blocks.0:1", "--heads", "blocks.1:0"]
    result = call(*asked, "--format", "json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    named = {"blocks.0": [1], "blocks.1": [0]}
    report = heads(network, images, replace="mean", replaced_heads=named, labels=labels)
    for key in ("change", "loss", "accuracy"):
        assert told["together"]["effect"][key] == pytest.approx(getattr(report.together.effect, key), rel=1e-4)
        assert told["together"]["random"][key] == pytest.approx(getattr(report.together.random, key), rel=1e-4)
    assert f"{report.together.effect.loss:.2e} ± {report.together.effect.loss_error:.0e}" in report.to_text(240)
    assert report.records()[1]["replaced_loss"] == report.layers[0].heads[1].replaced.effect.loss


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--heads", "blocks.0:1"], "--heads needs --replace"),
        (["--labels", "labels.csv"], "--labels needs --replace"),
        (["--replace", "mean", "--heads", "blocks.0"], "blocks.0"),
        (
            ["--replace", "mean", "--heads", "all", "--heads", "blocks.0:1"],
            "--heads names single heads and also all of them",
        ),
    ],
)
def test_options_on_heads_that_do_not_fit_are_refused(options, said, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(Transformer().state_dict(), "network.pt")
    np.save("images.npy", images.numpy())
    (tmp_path / "labels.csv").write_text("file,label\n")
    result = call("heads", "network.pt", "--inputs", "images.npy", "--arch", f"{__file__}:Transformer", *options)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_reading_runs_as_many_images_at_once_as_memory_allows_with_the_same_facts(images, monkeypatch):
    torch.manual_seed(0)
    network = Transformer().eval()
    wanted, sizes = heads(network, images), sizes_of_runs(network)
    monkeypatch.setattr(phase, "AT_ONCE", 1)
    found = heads(network, images)
    assert max(sizes) == 3
    # Two images are asked for their order, and once more for what random numbers change; then all, twice.
    assert [size for size in sizes if size > 1] == [2, 2, *[2, 2, 3] * 2]
    for one, other in zip(wanted.layers, found.layers, strict=True):
        assert (one.images, one.grid) == (other.images, other.grid) == (7, SIDES)
        for before, after in zip(one.heads, other.heads, strict=True):
            assert after.relative == pytest.approx(before.relative, abs=1e-6)
            assert after.distance == pytest.approx(before.distance, abs=1e-6)


@pytest.mark.parametrize(("count", "most", "parts"), [(7, 2, [2, 2, 3]), (3, 2, [3]), (4, 2, [2, 2]), (5, 9, [5])])
def test_no_part_of_a_batch_is_a_single_image(count, most, parts):
    batch = torch.arange(count)[:, None, None, None].expand(count, 3, 2, 2)
    found = phase.parts_of(batch, most)
    assert [len(each) for each in found] == parts
    assert torch.equal(torch.cat(found), batch)


def test_tokens_are_never_split():
    """Their first axis need not count inputs: (tokens, batch, channels) has another."""
    tokens = torch.zeros(9, 2, 4)
    assert phase.parts_of(tokens, 2) == [tokens]
