"""Errors that a mistaken hand could make in this package, each with a fast test that must fail on it."""

import os
import resource
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import pytest
from forks import run_apart

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    """`old` becomes `new` in a file of the package; `test` must then fail."""

    file: str
    old: str
    new: str
    test: str

    @property
    def path(self) -> Path:
        """Where the file is."""
        return ROOT / "conv2attn" / self.file


ALPHA = "tests/theory/bounds/edges/alpha.py"
LEAK = "tests/theory/bounds/edges/leak.py"
ROUNDING = "tests/theory/bounds/edges/rounding.py"
SHOWS = "tests/equality/layers/edges/counterexamples.py"
LEAKS = "tests/equality/layers/edges/leaks.py"
SHOWN = (
    "tests/equality/edges/planted_errors.py::test_a_planted_error_is_shown_by_an_input_and_not_by_the_corrected_network"
)
NETWORKS = "tests/equality/edges/networks.py"
ELSEWHERE = "tests/equality/laws.py::test_what_differs_elsewhere_is_one_formula_at_the_size_that_was_run"
OFF_GRID = "tests/equality/layers/edges/off_grid.py"
MAPS = "tests/equality/layers/edges/maps.py"
OUTPUTS = "tests/equality/edges/outputs.py"
ARITHMETIC = "tests/equality/layers/edges/arithmetic.py"
BASIS = "tests/theory/basis/laws.py"
DIFFERENCE = "tests/theory/bounds/edges/rounding.py::test_difference_of_a_leaking_layer_and_its_convolution"
HALVINGS = "halvings = 1 - storage.smallest_subnormal_exponent"

BY_KEY = "tests/theory/bounds/edges/by_key.py::test_the_bound_is_the_formula_of_the_claim"
SIDES = "tests/theory/bounds/edges/by_key.py::test_the_bound_is_the_same_at_every_side"
ONE_ROW = "tests/theory/bounds/edges/by_key.py::test_the_keys_of_an_enumeration_are_one_row"
CHOICE = "tests/layers/attention/edges/choice.py"
STORED = "tests/layers/attention/engines/laws.py::test_the_output_is_stored_as_the_convolution_s"
SOFT = "tests/layers/attention/edges/soft.py"
SOFT_WAYS = f"{SOFT}::test_each_way_to_evaluate_heads_is_the_sum_of_the_basis"
CHAIN = "tests/equality/layers/edges/chain.py"

MUTANTS = {
    "scores ten times too good": Mutant(
        "theory/bounds/by_key.py", "return (1 + u) ** 2 * added - 1,", "return ((1 + u) ** 2 * added - 1) / 10,", BY_KEY
    ),
    "scores off a pixel as on one": Mutant(
        "theory/bounds/by_key.py", "(1 + u) ** 5 * added", "(1 + u) ** 2 * added", BY_KEY
    ),
    "what the largest score is off by": Mutant(
        "theory/bounds/by_key.py", "2 * (relative * sharp * head.distance + lost)", "2 * lost", BY_KEY
    ),
    "an exponential that is exact": Mutant(
        "theory/bounds/by_key.py", "d = 2 * arb(arithmetic.exp_ulps) * u", "d = 0 * u", BY_KEY
    ),
    "a maximum that never grows": Mutant("theory/bounds/by_key.py", "math.ceil(keys / BLOCK)", "0", BY_KEY),
    "a centre beside a key half as far": Mutant(
        "theory/bounds/by_key.py", "(1 - 2 * Fraction(max(head.shifts)))", "(1 - Fraction(max(head.shifts)))", BY_KEY
    ),
    "an enumeration taken for a box": Mutant(
        "theory/bounds/by_key.py", "arithmetic.by_axis and head.box", "arithmetic.by_axis", ONE_ROW
    ),
    "a centre as on its pixel": Mutant(
        "equality/layers/bases.py", "return Head(alpha, shifts, distance,", "return Head(alpha, shifts, 0.0,", CHAIN
    ),
    "far keys forgotten": Mutant(
        "theory/bounds/row.py", "return near + self.far_weights(axes) + 2 * self.far(axes)", "return near", BY_KEY
    ),
    "far keys of one axis": Mutant(
        "theory/bounds/row.py", "return axes * prod(self.sums.tail", "return prod(self.sums.tail", BY_KEY
    ),
    "exponentials off by their scores alone": Mutant(
        "theory/bounds/row.py", "prod(ONE + self.ulps, moved) + prod(self.ulps, self.leak(axes))", "moved", BY_KEY
    ),
    "sums stored once": Mutant("theory/bounds/by_key.py", "        if stores:", "        if False:", BY_KEY),
    "the farthest key for all": Mutant(
        "theory/bounds/by_key.py",
        "        d = 2 * arb(arithmetic.exp_ulps) * u",
        "        constant += relative * positive_ball(head.alpha) * keys\n        d = 2 * arb(arithmetic.exp_ulps) * u",
        SIDES,
    ),
    "a leak counted once for two layers": Mutant(
        "equality/layers/rounding.py", "(mixings[0][0] + mixings[1][0]) * SLACK", "mixings[1][0] * SLACK", CHAIN
    ),
    "the rounding of one mean": Mutant(
        "equality/layers/rounding.py",
        "sum(getattr(m, part) for _, m in mixings)",
        "getattr(mixings[0][1], part)",
        CHAIN,
    ),
    "the engine ignored": Mutant(
        "equality/layers/rounding.py", "arithmetics(engine, like", 'arithmetics("dense", like', CHAIN
    ),
    "the error of features ignored": Mutant(
        "equality/layers/rounding.py", "each, features) for head", "each) for head", CHAIN
    ),
    "the product of factors exact": Mutant(
        "equality/layers/rounding.py", "return 2 * gamma(terms", "return 0 * gamma(terms", CHAIN
    ),
    "alpha 46 for 128": Mutant("theory/bounds/hard.py", HALVINGS, "halvings = 66", ALPHA),
    "alpha 88 for 128": Mutant("theory/bounds/hard.py", HALVINGS, "halvings = 127", ALPHA),
    "alpha 1024 for all": Mutant(
        "theory/bounds/hard.py", "SMALLEST_AUTO_ALPHA = 46.0", "SMALLEST_AUTO_ALPHA = 1000.0", ALPHA
    ),
    "alpha not a power of two": Mutant("theory/bounds/hard.py", "alpha *= 2", "alpha += 1", ALPHA),
    "a bit more in float32": Mutant("theory/bounds/formats.py", '"float32", 24', '"float32", 25', ALPHA),
    "tf32 as float32": Mutant(
        "theory/bounds/formats.py",
        '"tf32", 11',
        '"tf32", 24',
        f"{ARITHMETIC}::test_products_that_may_be_cut_are_counted_by_the_coarsest_setting",
    ),
    "rounded to nearest": Mutant(
        "theory/bounds/claimed.py", "return nearest if nearest >= exact else", "return nearest or", ALPHA
    ),
    "a leak by cancellation": Mutant(
        "theory/bounds/leak.py", "return odds / (1 + odds)", "return 1 - 1 / (1 + odds) * 1.0", LEAK
    ),
    "a leak forgets the far keys": Mutant(
        "theory/bounds/leak.py", "return pairs + arb(0).union(tail)", "return pairs / 2", LEAK
    ),
    "gamma halved": Mutant(
        "theory/bounds/sum_rounding.py",
        "Claimed(up(exact / (1 - exact)),",
        "Claimed(up(exact / (1 - exact) / 2),",
        ROUNDING,
    ),
    "the bias is not rounded": Mutant(
        "theory/bounds/row.py", "terms, terms + bias, casts", "terms, terms, casts", ROUNDING
    ),
    "the cast is not counted": Mutant(
        "theory/bounds/row.py", "power(self.cast, self.casts)", "power(self.cast, 0)", ROUNDING
    ),
    "half of the leak": Mutant(
        "theory/bounds/sum_rounding.py", "(2 * Fraction(leak)", "(Fraction(leak) / 4", DIFFERENCE
    ),
    "weights within a tolerance": Mutant(
        "equality/layers/exact_sums.py",
        "gaps.append(single[1].double() - single[0].double())",
        "gaps.append(torch.nn.functional.hardshrink(single[1].double() - single[0].double(), 1e-6))",
        f"{SHOWS}::test_the_channel_that_is_wrong_is_named_among_many[0.0-0]",
    ),
    "biases not compared": Mutant(
        "equality/layers/maps.py",
        'widest_gap("bias", biases[1], biases[0])',
        'widest_gap("bias", biases[1], biases[1])',
        f"{SHOWS}::test_a_difference_below_rounding_is_told_with_both_numbers[zeros-1]",
    ),
    "padding mode not compared": Mutant(
        "equality/layers/maps.py",
        "first.mode != second.mode",
        "False",
        f"{SHOWN}[reflect replaced by replicate]",
    ),
    "stride not compared": Mutant(
        "theory/basis/basis.py",
        "return Form(sites.stride,",
        "return Form((1,) * len(sites.stride),",
        f"{SHOWN}[stride that shows at some sizes only]",
    ),
    "heads off the grid": Mutant(
        "equality/layers/maps.py",
        'padding.mode == "zeros" and min(amounts) > 0',
        'padding.mode == "zeros"',
        f"{OFF_GRID}::test_heads_off_the_grid_of_two_axes[zeros on one axis hide nothing of another]",
    ),
    "any leak": Mutant(
        "equality/layers/leaks.py",
        "if not least > roundoff:",
        "if not least > 1:",
        f"{LEAKS}::test_only_the_heads_that_leak_are_counted_and_the_worst_is_named",
    ),
    "bounded called proved": Mutant(
        "equality/layers/leaks.py",
        "if not any(computed.values()) and",
        "if max(computed.values()) <= 1e-15 and",
        f"{NETWORKS}::test_strength_follows_alpha_and_not_what_is_measured",
    ),
    "one head of several at a place": Mutant(
        "equality/layers/exact_sums.py",
        "(factor.detach()[terms].cpu()",
        "(factor.detach()[terms[:1]].cpu()",
        f"{MAPS}::test_a_pair_of_layers_is_decided_by_the_right_part[two heads at one place, off together]",
    ),
    "sums of products in floats": Mutant(
        "equality/layers/exact_sums.py",
        "    (first, bits), (second, more) = (integer_matrix",
        "    return left @ right\n    (first, bits), (second, more) = (integer_matrix",
        f"{MAPS}::test_long_sums_of_large_numbers_are_exact",
    ),
    "a bit less of a float": Mutant(
        "theory/bounds/dyadic.py",
        "MANTISSA = 53",
        "MANTISSA = 52",
        f"{MAPS}::test_one_ulp_of_a_factor_is_seen_in_every_format",
    ),
    "NaN passes": Mutant(
        "equality/distances.py",
        "if not math.isfinite(apart.sum()):",
        "if False:",
        "tests/equality/edges/plain_calls.py::test_a_number_that_one_network_alone_does_not_have_is_infinitely_far[nan]",
    ),
    "missing outputs pass": Mutant(
        "equality/outputs.py",
        "if list(ours) != list(theirs):",
        "if False:",
        f"{OUTPUTS}::test_outputs_are_compared_by_place_and_kind",
    ),
    "constants not compared": Mutant(
        "equality/twins/lockstep.py",
        "if bits and self.numbers and not same_bits(first, second):",
        "if False:",
        "tests/equality/laws.py::test_a_changed_context_never_holds_but_for_rounding[running statistics]",
    ),
    "attributes not compared": Mutant(
        "equality/twins/lockstep.py",
        "if not (first is second or first == second):",
        "if False:",
        f"{ELSEWHERE}[cpu-a branch that small images do not take]",
    ),
    "hooks not compared": Mutant(
        "equality/twins/lockstep.py",
        "self.parts(ours, theirs)",
        "pass",
        f"{ELSEWHERE}[cpu-code for certain batch sizes]",
    ),
    "networks are not run beside each other": Mutant(
        "equality/comparison.py",
        "if self.runs.seen:",
        "if False:",
        "tests/equality/twins/edges/looking_code.py::test_code_that_looks_and_changes_less_than_rounding_holds_as_rounded_alone",
    ),
    "the networks in place of copies": Mutant(
        "equality/runs.py",
        "ours, theirs = (call(copy_network(network), inputs) for network in networks)",
        "ours, theirs = (call(network, inputs) for network in networks)",
        "tests/equality/edges/callers_networks.py::test_a_network_that_changes_at_a_call_is_as_it_was[counts]",
    ),
    "rounding explains nothing": Mutant(
        "equality/plain_calls.py",
        "REFUTES = 100.0",
        "REFUTES = 0.0",
        "tests/equality/edges/planted_errors.py::test_a_difference_that_rounding_or_packaging_explains_never_holds",
    ),
    "undecided exits 0": Mutant(
        "verdicts.py", "return 3", "return 0", f"{NETWORKS}::test_where_nothing_was_checked_nothing_holds"
    ),
    "the best row decides": Mutant(
        "verdicts.py",
        "return max(verdicts, key=order.index",
        "return min(verdicts, key=order.index",
        f"{MAPS}::test_weights_that_are_off_are_counted_and_the_worst_is_named[1]",
    ),
    "a certificate of any file": Mutant(
        "equality/certificate/stored_certificates.py",
        "if type(values[0]) is type(values[1]) and values[0] == values[1]:",
        "if type(values[0]) is type(values[1]):",
        "tests/equality/certificate/edges/rechecks.py::test_no_single_edit_holds_but_of_the_circumstances",
    ),
    "query minus key": Mutant(
        "theory/basis/grid.py",
        "return self.key_coordinates()[None] - torch.stack(sites, -1)[:, None]",
        "return torch.stack(sites, -1)[:, None] - self.key_coordinates()[None]",
        BASIS,
    ),
    "reflect off by one": Mutant(
        "theory/basis/padding.py", "((side - 1) - place.abs()).abs()", "(side - place.abs()).abs()", BASIS
    ),
    "the excluded norm forgets rounding": Mutant(
        "span/weighing.py",
        "slope = self.attended + per_norm * self.peak",
        "slope = self.attended",
        "tests/span/edges/witnesses.py::test_no_mixing_up_to_the_excluded_norm_leaves_what_counts_as_none",
    ),
    "floats of exact rows decide": Mutant(
        "span/solver.py",
        "if rows:\n        coefficients = Coefficients.exactly(targets.coefficients)\n\n        def exact",
        "if False:\n        coefficients = Coefficients.exactly(targets.coefficients)\n\n        def exact",
        "tests/span/edges/exact_rows.py::test_the_floats_of_exact_rows_decide_nothing",
    ),
    "what a dual meets is not charged": Mutant(
        "span/weighing.py",
        "(self.gain - norm * self.attended) / self.peak",
        "self.gain / self.peak",
        "tests/span/laws.py::test_verdicts_at_the_border_are_those_of_an_independent_programme",
    ),
    "a residual that grows with the norm counts as none": Mutant(
        "span/attention_rows.py",
        "min(norm, largest)",
        "norm",
        "tests/span/edges/arguments.py::test_the_largest_norm",
    ),
    "shares by all pairs of images": Mutant(
        "span/graded_facts/measures.py",
        "(total - own.sum(0)) / (n * (n - 1))",
        "total / n**2",
        "tests/span/edges/graded_facts/facts.py::test_shares_are_the_true_ones_within_three_standard_errors",
    ),
    "masked keys count": Mutant(
        "span/graded_facts/sums.py",
        "if unmasked else pixels",
        "if True else pixels",
        "tests/span/edges/graded_facts/facts.py::test_masked_keys_are_neither_content_nor_position",
    ),
    "taps of a transposed layer not flipped back": Mutant(
        "layers/theorem/modules.py",
        "turned(convolution.weight, convolution.groups)",
        "convolution.weight.transpose(0, 1)",
        "tests/span/edges/recovered.py::test_converting_and_recovering_gives_the_convolution_back",
    ),
    "tiles step one key too short": Mutant(
        "layers/attention/engines/profiles.py", "ends[0], tile * stride)", "ends[0], tile * stride - 1)", SOFT_WAYS
    ),
    "margins of tiles are one key off": Mutant(
        "layers/attention/engines/profiles.py",
        "return crop[0] - self.first, self.first",
        "return crop[0] - self.first - 1, 1 + self.first",
        SOFT_WAYS,
    ),
    "keys beyond the grid weigh something": Mutant(
        "layers/attention/engines/profiles.py", "masked_fill(beyond, -math.inf)", "masked_fill(beyond, -1.0)", SOFT_WAYS
    ),
    "tiles without their last keys": Mutant(
        "layers/attention/engines/profiles.py", "math.floor(high)))", "math.floor(high) - 3))", SOFT_WAYS
    ),
    "an image put together one pixel off": Mutant(
        "layers/attention/engines/mixing.py",
        "image = image.narrow(first",
        "image = image.roll(1, first + axis).narrow(first",
        SOFT_WAYS,
    ),
    "half of what a frozen head reads": Mutant(
        "layers/attention/engines/profiles.py",
        "return min(whole, least +",
        "return 0.5 * min(whole, least +",
        SOFT + "::test_what_frozen_heads_leave_out_weighs_less_than_rounding",
    ),
    "too many weights of a frozen head": Mutant(
        "layers/attention/engines/profiles.py",
        "return min(whole, least +",
        "return 3 * min(whole, least +",
        SOFT + "::test_what_frozen_heads_leave_out_weighs_less_than_rounding",
    ),
    "a nearest key that is left out": Mutant(
        "layers/attention/engines/profiles.py",
        "scores < top - depth - margin",
        "scores == top",
        SOFT + "::test_keys_that_are_kept_are_an_interval_with_the_nearest",
    ),
    "half a box of keys": Mutant(
        "theory/basis/numbers.py",
        "return self.center[axis] - far,",
        "return self.center[axis] - far / 4,",
        SOFT + "::test_boxes_keep_every_weight",
    ),
    "a window gives back what no other reads": Mutant(
        "layers/attention/engines/mixing.py",
        "overlapped(gradients[0], ",
        "overlapped(gradients[0][..., : ctx.step], ",
        "tests/layers/attention/edges/windows.py",
    ),
    "a frame that is one pixel off": Mutant(
        "layers/attention/engines/compiled.py",
        "front = [start - before + span",
        "front = [start - before + span + 1",
        CHOICE,
    ),
    "the cost of all pairs is off by far": Mutant(
        "layers/attention/engines/__init__.py", "DENSE_PASSES = 12.0", "DENSE_PASSES = 768.0", CHOICE
    ),
    "the cost of axes is off by far": Mutant(
        "layers/attention/engines/__init__.py", "SEPARABLE_PASSES = 64.0", "SEPARABLE_PASSES = 4096.0", CHOICE
    ),
    "an output stored in another order": Mutant(
        "layers/attention/storage.py", "return result.clone(memory_format=form)", "return result", STORED
    ),
    "an output that is a view": Mutant(
        "layers/attention/storage.py", "if result._is_view() else result", "if False else result", STORED
    ),
    "what a memory planner left behind is kept": Mutant(
        "layers/attention/encoding.py",
        "if not is_transient(image):",
        "if True:",
        "tests/layers/attention/edges/frozen.py",
    ),
    "offsets that move a head half as far": Mutant(
        "layers/theorem/deformable.py",
        "layer.query = nn.Parameter(2 * sharpness",
        "layer.query = nn.Parameter(sharpness",
        "tests/layers/theorem/edges/deformable.py",
    ),
    "offsets with their axes exchanged": Mutant(
        "layers/theorem/deformable.py",
        ".unflatten(0, (-1, axes))  # (heads",
        ".unflatten(0, (-1, axes)).flip(1)  # (heads",
        "tests/layers/theorem/edges/deformable.py",
    ),
    "the term u.k is forgotten": Mutant(
        "theory/basis/operators/content.py",
        "if self.terms.uk:",
        "if False:",
        "tests/layers/attention/edges/drawn.py::test_every_exact_engine_gives_the_same_and_the_others_refuse",
    ),
    "permuted heads are in order": Mutant(
        "layers/attention/lattice.py",
        "in_order = order == tuple(range(len(order)))",
        "in_order = True",
        "tests/layers/attention/engines/laws.py::test_converted_layers_obey_the_laws",
    ),
}


class MutatedLoader(SourceFileLoader):
    """Loads one file from another source."""

    def __init__(self, name: str, path: str, source: str):
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname):
        return compile(self.source, self.path, "exec")


class Planted(MetaPathFinder):
    """Finds modules as they are found without it, but the file `path` with another source."""

    def __init__(self, path: Path, source: str):
        self.path, self.source, self.found = str(path), source, False

    def find_spec(self, fullname, path, target=None):
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin == self.path:
            spec.loader, self.found = MutatedLoader(fullname, self.path, self.source), True
        return spec


QUIETLY = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
"""Options of pytest in a fork: the first failure decides, and libraries are imported already."""


def run(path: Path, source: str, tests: list[str], seconds: int) -> None:
    """Exits with the code of the tests, in a process that has not imported the package yet."""
    if "conv2attn" in sys.modules:
        os._exit(70)  # too late to plant anything
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    os.chdir(ROOT)
    os.environ |= {"CONV2ATTN_PROFILE": "mutants", "CONV2ATTN_ALL": "1"}  # the same examples each time, and every day
    # Whatever a test before has put in front, the package is that of this checkout.
    sys.path.insert(0, str(ROOT))
    sys.path_importer_cache.clear()
    sys.meta_path.insert(0, planted := Planted(path, source))
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    code = 70
    try:
        code = int(pytest.main([*tests, *QUIETLY]))
        code = code if planted.found else 71  # the file was never imported: nothing was planted
    finally:
        os._exit(code)


def exit_code(path: Path, source: str, tests: list[str], seconds: int = resource.RLIM_INFINITY) -> int | None:
    """The exit code of tests where the file has another source, in a fork of a process that has imported torch.

    -SIGXCPU if they take more than `seconds` of a processor.
    """
    return run_apart(run, path, source, tests, seconds)


def outcome(mutant: Mutant) -> int | None:
    """The exit code of the mutant's test on the mutated package."""
    return exit_code(mutant.path, mutant.path.read_text().replace(mutant.old, mutant.new), [mutant.test])
