"""Rules without oracles against torch on whole numbers, whose residues are known; the ring against Python integers."""

import random

import pytest
import torch
import torch.nn.functional as F

from conv2attn.equality.fingerprint import (
    Field,
    bilinear,
    fingerprint,
    formulas,
    identify,
    limbs_for,
    near_remainder,
    residues,
)

GENERATOR = torch.Generator().manual_seed(3)


def whole(*shape):
    return torch.randint(-4, 5, shape, generator=GENERATOR).float()


X, WEIGHT, GROUPED, BIAS = whole(2, 4, 9, 8), whole(6, 4, 3, 3), whole(8, 2, 3, 2), whole(6)
BACK, BACK_GROUPED, CUBE, MATRIX = whole(4, 5, 3, 2), whole(4, 3, 2, 3), whole(3, 2, 2, 3, 1), whole(8, 8)
T = torch.tensor


def edited(x):
    y = x.clone()
    y[:, ::2].mul_(3)
    y[:, 1].fill_(2)
    y[1, 2].copy_(x[0, 1])
    y[0, [1, 2]] = 4.0
    return y


RULES = {
    "add": lambda x: torch.add(x, x.flip(1), alpha=3),
    "rsub": lambda x: 5 - x,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "lerp": lambda x: torch.lerp(x, x * 3, 2.0),
    "power": lambda x: x**3 - x.square(),
    "division": lambda x: x / -4,
    "division by a tensor": lambda x: x / torch.full((8,), 0.5),
    "sums": lambda x: x.sum((1, -1)) + x.sum(2, True)[:, 0, 0, :1],
    "sums without nan": lambda x: x.nansum((1, -1)) + x.nansum(2, True)[:, 0, 0, :1],
    "powers of numbers without sign": lambda x: torch.linalg.vector_norm(x.square(), 1, (1, 3)),
    "mean": lambda x: x.mean((1, -1), True),
    "cumsum": lambda x: x.cumsum(2),
    "variance": lambda x: x.var(1, correction=0) * 16,
    "products": lambda x: torch.einsum("bchw,bdhw->bcd", x, x),
    "addmm": lambda x: torch.addmm(x[0, 0], x[0, 1], MATRIX, beta=3, alpha=2),
    "baddbmm": lambda x: torch.baddbmm(x[0], x[1], MATRIX.expand(4, 8, 8), beta=2, alpha=5),
    "vectors": lambda x: torch.addmv(x[0, 0, :, 0], x[0, 0], MATRIX[1], beta=2, alpha=3) + x[0, 0, 0] @ x[1, 1, 1],
    "linear": lambda x: F.linear(x, MATRIX, MATRIX[0]),
    "convolution": lambda x: F.conv2d(x, WEIGHT, BIAS, stride=(2, 3), padding=(1, 2), dilation=(1, 2)),
    "groups": lambda x: F.conv2d(x, GROUPED, groups=2, padding=1),
    "depthwise": lambda x: F.conv2d(x, WEIGHT[:4, :1], groups=4),
    "weights from the input": lambda x: F.conv2d(x, x[:, :, :3, :2]),
    "transposed": lambda x: F.conv_transpose2d(x, BACK, MATRIX[0, :5], (2, 3), (1, 0), (1, 2)),
    "transposed groups": lambda x: F.conv_transpose2d(x, BACK_GROUPED, groups=2, stride=2, dilation=2),
    "one axis": lambda x: F.conv1d(x[:, :, 0], WEIGHT[:, :, 0], stride=2, padding=1),
    "three axes": lambda x: F.conv3d(x[None], CUBE),
    "average": lambda x: F.avg_pool2d(x, (2, 4), (1, 2), (1, 2)),
    "average without padding": lambda x: F.avg_pool2d(x, 2, 2, 1, count_include_pad=False) * 4,
    "average with a divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=2),
    "three axes averaged": lambda x: F.avg_pool3d(x, (2, 3, 4), (1, 2, 3), (1, 0, 2), count_include_pad=False) * 3,
    "three axes averaged to a size": lambda x: F.adaptive_avg_pool3d(x[:, :, :8], (2, 4, 2)),
    "folded": lambda x: F.fold(F.unfold(x, (3, 2), 2, 1, 2), (9, 8), (3, 2), 2, 1, 2),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x[..., :8, :], (4, 2)),
    "unfold": lambda x: F.unfold(x, (3, 2), dilation=2, padding=1, stride=2),
    "pads": lambda x: F.pad(F.pad(x, (2, 1, 3, 0), mode="reflect"), (1, 2, -1, 3), value=7.0),
    "replicated": lambda x: F.pad(F.pad(x, (2, 1, 3, 0), mode="replicate"), (1, 1, 1, 1), mode="circular"),
    "turns": lambda x: x.rot90(1, (2, 3)).roll((3, -2), (1, 3)).flip((1, 3)).tril(1),
    "repeats": lambda x: x.repeat(1, 2, 1, 3).repeat_interleave(3, 1),
    "indices": lambda x: x[:, [2, 0, 0], :, [1, 5, 7]],
    "masks": lambda x: x[:, T([True, False, True, True])].masked_fill(torch.arange(8) > 3, 2.0),
    "gathered": lambda x: x.gather(1, (torch.arange(576).reshape(2, 4, 9, 8) * 7) % 4).take(T([[5, 1], [9, 100]])),
    "scattered": lambda x: torch.zeros_like(X).scatter(1, T([3, 1, 0, 2]).reshape(1, 4, 1, 1).expand(X.shape), x),
    "put": lambda x: x.index_put((T([0, 1]), T([3, 2])), x[0, :2]).index_copy(1, T([2, 0]), x[:, :2] * 2),
    "added at indices": lambda x: x.index_add(-1, T([3, 0, 3]), x[..., :3], alpha=3),
    "added at places": lambda x: x.scatter_add(1, (torch.arange(432).reshape(2, 3, 9, 8) * 7) % 4, x.flip(1)),
    "added in place": lambda x: torch.zeros(2, 2, 9, 8).index_add_(1, T([1, 0, 1, 1]), x),
    "where": lambda x: torch.where(torch.arange(8) > 3, x, x.flip(-1) * 2),
    "diagonals": lambda x: torch.diag_embed(x).diagonal(1, 2, 3),
    "views": lambda x: x.unfold(2, 3, 2).transpose(0, 3).as_strided((3, 4), (7, 2), 5),
    "shuffles": lambda x: F.channel_shuffle(F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), 2),
    "nearest": lambda x: F.interpolate(F.interpolate(x, scale_factor=(1.7, 2.3)), size=(13, 5), mode="nearest-exact"),
    "slices scattered": lambda x: torch.slice_scatter(x, x[:, 1:3] * 2, 1, 0, 4, 2).select_scatter(x[:, 0] * 3, 1, 2),
    "joined": lambda x: torch.cat([x, torch.ones(2, 1, 9, 8), torch.stack([x, x * 2], 2)[:, :, 1]], 1),
    "channels last": lambda x: F.conv2d(x.contiguous(memory_format=torch.channels_last), WEIGHT).contiguous(),
    "wider": lambda x: x.double() * 3 + 1,
    "a part, wider": lambda x: x[1].double(),
    "edited": edited,
    "in place": lambda x: x.clone().mul_(2).add_(x, alpha=3).sub_(1),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_give_the_residues_of_torchs_numbers(name, monkeypatch):
    monkeypatch.setattr(Field, "input", lambda field, shape: field.encode(X).values.clone())
    field = Field(2)
    _, values = fingerprint(RULES[name], X, field)
    wanted = RULES[name](X.clone())
    assert values[0].mark is None
    assert torch.equal(values[0].values, field.encode(wanted).values)
    assert values[0].sign < 1 or bool((wanted >= 0).all())


@pytest.mark.parametrize("name", RULES)
def test_degrees_and_heights_are_counted_without_primes_too(name):
    fields = Field(0), Field(1)
    for field in fields:
        fingerprint(RULES[name], X, field)
    counted, expected = ((each.degree, each.height, each.oracle_values) for each in fields)
    assert counted == expected


SUMS = (
    *("sums", "mean", "cumsum", "variance", "products", "addmm", "linear", "convolution", "groups", "transposed"),
    *("average", "average without padding", "adaptive", "folded", "added at indices", "added at places"),
)


@pytest.mark.parametrize("name", SUMS)
def test_no_sum_has_more_terms_than_are_exact(name, monkeypatch):
    monkeypatch.setattr(residues, "MOST_TERMS", 1)
    assert "a sum of too many numbers" in identify(RULES[name], RULES[name], X).reason


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_stored_numbers_are_encoded_exactly(dtype):
    field = Field(3)
    numbers = (torch.randn(50, generator=GENERATOR, dtype=torch.float64) * 10.0 ** torch.arange(-25, 25)).to(dtype)
    numbers = torch.where(numbers.isfinite(), numbers, 0) if dtype.is_floating_point else numbers
    for encoded, number in zip(field.encode(numbers).values.T.tolist(), numbers.tolist(), strict=True):
        numerator, denominator = number.as_integer_ratio()
        assert encoded == [numerator * pow(denominator, -1, p) % p for p in field.primes]


def test_remainders_in_float64_are_those_of_pythons_integers():
    """Multiples of a prime are where the quotient in float64 rounds to the wrong side."""
    source = random.Random(5)
    for p in Field(4).primes:
        near = [n * p + d for n in (-9, -2, -1, 0, 1, 2, 1000) for d in (-1, 0, 1)]
        most = 2**53 - 2**32
        numbers = [*near, most, -most, *(source.randrange(-most, most) for _ in range(1000))]
        remainders = near_remainder(torch.tensor(numbers).double(), p).tolist()
        assert [int(n) % p for n in remainders] == [n % p for n in numbers]
        assert all(-p <= n < 2 * p for n in remainders)


def product_of_matrices(rows, columns, p, bits):
    def op(parts, other):
        return [(parts.flatten(0, 1) @ other).chunk(len(parts))]

    first, second = (torch.where(each > p // 2, each - p, each).double() for each in (rows, columns))
    return bilinear(lambda *_: first, lambda *_: second, [p], bits, len(columns), op, 0)[0]


@pytest.mark.parametrize("limbs", [1, 2, 3, 4])
def test_the_longest_sums_of_the_largest_products_are_exact(limbs):
    """Factors at both ends, and such whose limbs are at theirs."""
    bits = {1: 20, 2: 26, 3: 31, 4: 31}[limbs]
    lengths = [n for n in range(1, 1 << 16) if limbs_for(n, bits)[0] == limbs]
    terms, width = lengths[-1], limbs_for(lengths[-1], bits)[1]
    primes = Field(2, bits).primes
    for p in primes:
        half = 1 << width - 1
        ends = [p // 2, p // 2 + 1, half, p - half, half + (half << width), p - 1, 0]
        rows = torch.tensor([[each % p] * terms for each in ends])
        columns = torch.tensor([[p // 2, p // 2 + 1]] * terms)
        products = product_of_matrices(rows, columns, p, bits)
        assert products.tolist() == [[row * end * terms % p for end in (p // 2, p // 2 + 1)] for row in ends]


def test_the_longest_sum_leaves_room_for_what_the_limbs_above_leave():
    """Odd factors at their ends, with the largest prime and the largest remainder that comes down."""
    lengths = [n for n in range(1, 1 << 10) if limbs_for(n, 31)[0] == 2]
    terms, width = lengths[-1], limbs_for(lengths[-1], 31)[1]
    p, end = 2**31 - 1, 2**30 - 1
    above = max(range(1 << 30 - width), key=lambda n: n * end * terms % p)
    row = (above << width) + (1 << width - 1) - 1
    product = product_of_matrices(torch.tensor([[row] * terms]), torch.tensor([[end]] * terms), p, 31)
    assert product.item() == row * end * terms % p


WEIGHTS = {
    "of a layer": torch.randn(2, 700, generator=GENERATOR) * 0.02,
    "whole numbers at both ends of float64": torch.tensor([[2.0**52, -(2.0**52), 2.0**52 - 2**28, 1.0, 0.0]] * 2),
    "too far apart for float64": torch.tensor([[2.0**52, 0.5, 0.0], [1e30, 1e-30, 2.0**-149]]),
    "zeros": torch.zeros(2, 3),
    "float64": torch.randn(2, 300, generator=GENERATOR, dtype=torch.float64),
    "transposed": torch.randn(500, 2, generator=GENERATOR).mT,
    "large whole numbers": torch.tensor([[7, -(2**40)]] * 2),
}


@pytest.mark.parametrize("bits", [7, 20, 29, 31])
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("at_once", [formulas.MOST_AT_ONCE, 700])
def test_products_of_constants_and_residues_are_those_of_their_residues(name, bits, at_once, monkeypatch):
    """In slices of their terms and of their columns, whichever factor is cut into limbs."""
    monkeypatch.setattr(formulas, "MOST_AT_ONCE", at_once)
    field, weights = Field(2, bits), WEIGHTS[name]
    for rows in (1, 5):
        tokens = field.encode(torch.randn(rows, weights.shape[1], generator=GENERATOR))
        product = formulas.matmul(field, field.as_factor(tokens), field.factor(weights.mT)).values
        for place, p in enumerate(field.primes):
            ours, theirs = tokens.values[place].tolist(), field.encode(weights).values[place].tolist()
            exact = [[sum(x * y for x, y in zip(a, b, strict=True)) % p for b in theirs] for a in ours]
            assert product[place].tolist() == exact


@pytest.fixture
def flushing():
    torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("largest", [1, 1 << 23, 29 << 23])
def test_subnormal_weights_are_told_apart_where_arithmetic_flushes_them_to_zero(largest, flushing):
    # From their bits, since the cast of a number is flushed too: 2^-149 or 2^-148 beside at most 2^-98.
    first, second = (T([[tiny, 3], [3, largest]], dtype=torch.int32).view(torch.float32) for tiny in (1, 2))
    field = Field(2)
    tokens = field.as_factor(field.encode(torch.eye(2)))
    products = [formulas.matmul(field, tokens, field.factor(weight)).values for weight in (first, second)]
    for weight, product in zip((first, second), products, strict=True):
        assert torch.equal(product, field.encode(weight).values)
    assert not torch.equal(*products)


@pytest.mark.parametrize("settings", [{}, {"groups": 2}, {"stride": 2, "padding": 1}])
@pytest.mark.parametrize("convolution", [F.conv2d, F.conv_transpose2d])
def test_convolutions_of_many_channels_are_sums_of_those_of_each(convolution, settings, monkeypatch):
    image = torch.randint(-9, 9, (1, 64, 5, 6), generator=GENERATOR).float()
    kernel = torch.randint(-9, 9, (64, 64 // settings.get("groups", 1), 3, 3), generator=GENERATOR).float()
    monkeypatch.setattr(Field, "input", lambda field, shape: field.encode(image).values.clone())
    field = Field(2)
    _, values = fingerprint(lambda x: convolution(x, kernel, **settings), image, field)
    assert torch.equal(values[0].values, field.encode(convolution(image, kernel, **settings)).values)
