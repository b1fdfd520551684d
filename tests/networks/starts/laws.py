"""Starts: heads look where their rows say, by formulas that share no code with them, and everything trains."""

import copy
import io
import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import conv2attn
from conv2attn.errors import UnsupportedError
from conv2attn.networks.starts import Parts
from studies.transformer import TransformerPlan, VisionTransformer


class Own(nn.Module):
    """A transformer of one's own: a class token, norms behind each layer, names that nobody else has."""

    def __init__(self, sides=(6, 9), width=48, heads=4, written=()):
        super().__init__()
        self.sides, self.written = sides, written
        self.embedding = nn.Linear(12, width)
        self.where = nn.Parameter(0.1 * torch.randn(math.prod(sides) + 1, width))
        self.class_token = nn.Parameter(torch.randn(width))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, 64, 0.0) for _ in range(2))
        self.beside = nn.Linear(width, width)

    def forward(self, patches):
        tokens = self.embedding(patches)
        tokens = torch.cat([self.class_token.expand(len(tokens), 1, -1), tokens], 1)
        tokens = tokens + self.where[: tokens.shape[1]]
        for number, block in enumerate(self.blocks):
            tokens = block(tokens.transpose(0, 1)).transpose(0, 1)
            if number in self.written:
                tokens = tokens + self.beside(tokens)
        return tokens[:, 0]


PARTS = Parts(positions="where", sides=(6, 9))


def vit(**sizes):
    torch.manual_seed(0)
    return VisionTransformer(TransformerPlan(**sizes))


def own(**arguments):
    torch.manual_seed(0)
    network = Own(**arguments)
    return network, {"example_input": torch.randn(3, 54, 12), "parts": PARTS}


CASES = {
    "7x7": lambda: (vit(), {}, (7, 7)),
    "8x8, one head of 16": lambda: (vit(side=8, patch=1, width=32, heads=2, layers=2), {}, (8, 8)),
    "torch's draw": lambda: (vit(drawn="torch"), {}, (7, 7)),
    "32x32": lambda: (vit(side=32, patch=1, width=32, heads=2, layers=1), {}, (32, 32)),
    "rectangular, class token, post-norm": lambda: (*own(), (6, 9)),
}


def inputs_of(network, arguments, seed=1):
    side = 0 if "example_input" in arguments else network.plan.side
    return arguments.get("example_input", torch.randn(2, 1, side, side, generator=torch.Generator().manual_seed(seed)))


def quadratic_attention(sides, query, offset, alpha):
    """The quadratic head's attention at its target, by its definition."""
    target = [q + c for q, c in zip(query, offset, strict=True)]
    scores = {k: -alpha * math.dist(k, target) ** 2 for k in itertools.product(*map(range, sides))}
    return 1 / sum(math.exp(score - scores[tuple(target)]) for score in scores.values())


def attends_as_much_as_its_row_says(row, attention, sides, alpha, slack=0.0):
    """Attention (images, tokens, tokens) gives each target on the grid what the formula does, less the row's bound."""
    grid = {cell: number for number, cell in enumerate(itertools.product(*map(range, sides)))}
    leading = attention.shape[-1] - len(grid)
    for query, number in list(grid.items())[:: max(1, len(grid) // 49)]:
        target = tuple(q + c for q, c in zip(query, row.offset, strict=True))
        if target in grid:
            least = quadratic_attention(sides, query, row.offset, alpha) - row.bound - slack
            if not (attention[:, leading + number, leading + grid[target]] >= least).all():
                return False
    return True


@pytest.mark.rotated
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("kernel_size", "alpha"), [(3, 2.0), (5, 1.0)])
def test_each_head_attends_as_much_as_its_row_says(case, kernel_size, alpha):
    network, arguments, sides = CASES[case]()
    if case == "32x32" and kernel_size == 5:
        alpha = 4.0
    start = conv2attn.start_at_convolution(network, kernel_size=kernel_size, alpha=alpha, **arguments)
    captured = conv2attn.capture(network, inputs_of(network, arguments, seed=0))  # those by which peaks were counted
    assert len(start.heads) == sum(maps.shape[1] for maps in captured.values())
    grid = {cell: number for number, cell in enumerate(itertools.product(*map(range, sides)))}
    assert ("attend more to another token" in str(start)) == any(row.peaked < 1 for row in start.heads)
    for row in start.heads[:: max(1, len(start.heads) // 4)]:
        attention = captured[row.layer][:, row.head, -len(grid) :]
        leading = attention.shape[-1] - len(grid)
        targets = [tuple(q + c for q, c in zip(query, row.offset, strict=True)) for query in grid]
        inside = [number for number, target in enumerate(targets) if target in grid]
        places = torch.tensor([leading + grid[targets[number]] for number in inside])
        peaks = (attention[:, inside].argmax(-1) == places).double().mean().item()
        assert row.peaked == pytest.approx(peaks, abs=1e-3)
        assert attention[..., :leading].sum() <= 0.02 * attention.shape[0] * len(grid)
        assert attends_as_much_as_its_row_says(row, captured[row.layer][:, row.head], sides, alpha)
        assert row.mass > 2 / len(grid)


def test_all_offsets_of_an_image_are_dealt_out():
    network = vit(side=12, patch=4, heads=8, layers=4)
    start = conv2attn.start_at_convolution(network, kernel_size="image", alpha=1.0)
    every = set(itertools.product(range(-2, 3), range(-2, 3)))
    assert {head.offset for head in start.heads} == every


def test_drawn_content_stays_and_the_bound_is_measured_with_it():
    before, silent = vit(drawn="torch", layers=2), vit(drawn="torch", layers=2)
    network, images = copy.deepcopy(before), torch.randn(3, 1, 28, 28)
    quiet = conv2attn.start_at_convolution(silent, example_input=images)
    start = conv2attn.start_at_convolution(network, example_input=images, content="drawn")
    for old, new, mute in zip(before.layers, network.layers, silent.layers, strict=True):
        drawn, kept, none = (each.self_attn.in_proj_weight.detach()[:128] for each in (old, new, mute))
        assert torch.equal(kept[:, start.channels :], drawn[:, start.channels :])
        assert not none[:, start.channels :].any()
    first, plain = (
        each.layers[0].self_attn.in_proj_weight.detach()[:128, : start.channels] for each in (network, silent)
    )
    assert torch.equal(first, plain)  # further layers read waves that the first has scaled by its content
    captured = conv2attn.capture(network, images)
    for row in start.heads:
        assert attends_as_much_as_its_row_says(row, captured[row.layer][:, row.head].double(), (7, 7), 2.0, 1e-6)
    assert max(h.bound for h in start.heads) > max(h.bound for h in quiet.heads)


def test_blind_values_do_not_read_the_waves():
    """Moving the waves of the keys alone moves no output of values."""
    before, network = vit(), vit()
    start = conv2attn.start_at_convolution(network, values="blind")
    for old, new in zip(before.layers, network.layers, strict=True):
        values, kept = (each.self_attn.in_proj_weight.detach()[128:] for each in (new, old))
        assert not values[:, : start.channels].any()
        assert torch.equal(values[:, start.channels :], kept[:, start.channels :])


def test_heads_finds_planted_shifts():
    network = vit(layers=2)
    start = conv2attn.start_at_convolution(network, alpha=4.0)
    maps = conv2attn.capture(network, torch.randn(64, 1, 28, 28))
    for layer, attention in maps.items():
        facts = conv2attn.heads(attention.mean(0), grid=(7, 7))
        (row,) = facts.layers
        peaks = [tuple(head.peak) for head in row.heads]
        assert peaks == [row.offset for row in start.heads if row.layer == layer]


@pytest.mark.parametrize("case", ["7x7", "rectangular, class token, post-norm"])
def test_everything_trains_and_survives_its_state_dict(case):
    network, arguments, _ = CASES[case]()
    classes = {name: type(module) for name, module in network.named_modules()}
    shapes = {name: value.shape for name, value in network.state_dict().items()}
    network.train()
    start = conv2attn.start_at_convolution(network, **arguments)
    assert network.training
    if "class token" in case:
        assert not network.where[0, : start.channels].any()
        assert not network.class_token[: start.channels].any()
    assert {name: type(module) for name, module in network.named_modules()} == classes
    assert {name: value.shape for name, value in network.state_dict().items()} == shapes
    images = inputs_of(network, arguments)
    network(images)[:, :7].square().sum().backward()
    still = {name for name, p in network.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())}
    assert {name for name in still if "beside" not in name} == set()
    for attention in (module for module in network.modules() if isinstance(module, nn.MultiheadAttention)):
        queries = attention.in_proj_weight.grad[: attention.embed_dim]
        assert queries.any(1).all()  # of numbers that heads have beside the waves too
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    file.seek(0)
    again, *_ = CASES[case]()
    again.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        assert torch.equal(again.eval()(images), network.eval()(images))


@pytest.mark.parametrize("sides", [(18,), (3, 3, 2)])
def test_tokens_first_and_as_many_of_them_as_numbers_in_a_head(sides):
    torch.manual_seed(0)
    network = Own(sides=sides, width=36, heads=2)
    network.where.data = network.where.data[-18:]
    network.class_token.data.zero_()
    network.forward = lambda patches: tokens_of(network, patches)
    start = conv2attn.start_at_convolution(
        network, kernel_size=2, example_input=torch.randn(2, 18, 12), parts=Parts("where", sides=sides)
    )
    assert all(row.mass > row.quadratic - row.bound for row in start.heads)


def tokens_of(network, patches):
    """A forward without a class token."""
    tokens = network.embedding(patches) + network.where
    for block in network.blocks:
        tokens = block(tokens.transpose(0, 1)).transpose(0, 1)
    return tokens


def test_a_second_start_and_one_within_autocast_are_the_first(recwarn):
    network = vit(layers=1).requires_grad_(requires_grad=False)
    first = conv2attn.start_at_convolution(network)
    state = copy.deepcopy(network.state_dict())
    with torch.autocast("cpu", torch.bfloat16):
        again = conv2attn.start_at_convolution(network)
    assert [row.offset for row in again.heads] == [row.offset for row in first.heads]
    assert all(torch.allclose(value, state[name], atol=1e-4) for name, value in network.state_dict().items())
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_offsets_are_dealt_evenly_and_by_the_seed():
    starts = [conv2attn.start_at_convolution(vit(width=72, heads=9, layers=2), seed=seed) for seed in (0, 0, 1)]
    counts = [[row.offset for row in start.heads].count(offset) for start in starts for offset in {(0, 0), (1, -1)}]
    assert counts == [2] * 6
    first, same, other = ([row.offset for row in start.heads] for start in starts)
    assert first == same != other
    many = conv2attn.start_at_convolution(vit(width=96, heads=24, layers=1), kernel_size=3)
    times = [[row.offset for row in many.heads].count(row.offset) for row in many.heads]
    assert set(times) == {2, 3}


def test_it_learns_compiled_mixed_and_in_processes(process_group):
    network = vit(layers=1)
    conv2attn.start_at_convolution(network)
    images, labels = torch.randn(10, 1, 28, 28), torch.arange(10)
    for kind, run in (("mixed", network), ("compiled", torch.compile(copy.deepcopy(network), backend="aot_eager"))):
        optimiser = torch.optim.AdamW(run.parameters(), 1e-2)
        losses = []
        for _ in range(15):
            with torch.autocast("cpu", torch.bfloat16, enabled=kind == "mixed"):
                loss = cross_entropy(run(images).float(), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert losses[-1] < 0.9 * losses[0], kind
    nn.parallel.DistributedDataParallel(network)(images).sum().backward()


class TwoHeads(nn.Module):
    """Attention of two heads on tokens first, which says that it has another number, or says nothing."""

    batch_first = False

    def __init__(self, width, **said):
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        for name, number in said.items():
            setattr(self, name, number)

    def forward(self, tokens, *_, **__):
        query, key, value = self.qkv(tokens.transpose(0, 1)).unflatten(-1, (3, 2, -1)).movedim(-3, 0).transpose(-2, -3)
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.proj(attended.movedim(2, 0).flatten(2)), None


@pytest.mark.parametrize("said", [{"num_heads": 2}, {"head_dim": 24}])
def test_the_number_of_heads_is_what_the_layer_says(said):
    network, arguments = own()
    for block in network.blocks:
        block.self_attn = TwoHeads(48, **said)
    assert len(conv2attn.start_at_convolution(network, **arguments).heads) == 4


def test_a_network_that_is_refused_is_unchanged_and_starts_once_its_parts_are_named():
    network, arguments = own(written=(0,))
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(UnsupportedError, match="is not positions"):
        conv2attn.start_at_convolution(network, **arguments)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    named = Parts("where", ("embedding", "beside", "blocks.*.linear2", "blocks.*.self_attn.out_proj"), sides=(6, 9))
    conv2attn.start_at_convolution(network, **{**arguments, "parts": named})


def test_a_compiled_network_starts():
    compiled = torch.compile(vit(layers=1), backend="eager")
    assert len(conv2attn.start_at_convolution(compiled, example_input=(1, 28, 28)).heads) == 8
