"""The JSON document of a certificate as types; docs/certificate.schema.json is written from them."""

from typing import Literal

from conv2attn.report.stored import Number, Stored
from conv2attn.verdicts import Strength, Verdict

SCHEMA = "conv2attn.certificate/3"


class StoredFinding(Stored, frozen=True):
    """The decision on one part, and the statements of proofs/ that license it."""

    part: Literal["geometry", "weights", "leak", "measured", "tolerance", "structure", "outputs", "sampled", "support"]
    verdict: Verdict
    strength: Strength
    code: str
    sentence: str
    licensed_by: list[str]


class StoredForm(Stored, frozen=True):
    """Output o of head or tap t copies pixel `starts[t] + o * stride` of pixels `spacing` apart, as `room` allows."""

    stride: tuple[int, ...]
    room: tuple[int, ...]
    spacing: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: Literal["zeros", "reflect", "replicate", "circular"]
    starts: tuple[tuple[int, ...], ...]
    groups: int
    transposed: bool


class StoredLicences(Stored, frozen=True):
    """The statements of proofs/ that license the bound and the leak of a layer."""

    bound: list[str]
    leak: list[str]


class StoredLayer(Stored, frozen=True):
    """One layer: its verdict with all findings, and its numbers. `memory_saved` is in bytes."""

    name: str
    convolution: str
    verdict: Verdict
    findings: list[StoredFinding]
    strength: Strength | None
    skipped: bool
    forms: list[StoredForm] | None
    grid: list[int] | None
    heads: int | None
    d_head: int | None
    parameters: int | None
    alpha: Number | None
    memory_saved: int | None
    leak: Number | None
    input_range: Number | None
    max_error: Number | None
    bound: Number | None
    licensed_by: StoredLicences


class StoredGap(Stored, frozen=True, rename={"axes": "place"}):
    """Where a tensor of the outputs differs most, both numbers there, and how many numbers differ."""

    output: str
    axes: dict[str, int]
    original: Number
    converted: Number
    count: int


class StoredOutputs(Stored, frozen=True):
    """The outputs of both networks on some images."""

    images: str
    count: int
    max_difference: Number
    largest_output: Number
    same_top1: int | None
    correct: list[int] | None
    stable: int | None
    bound: Number | None
    vacuous: bool | None
    stable_by_bound: int | None
    gaps: list[StoredGap]


class StoredWitness(Stored, frozen=True, rename={"axes": "place", "index": "image"}):
    """An input on which the networks differ, and by how much; the input itself is saved apart."""

    layer: str
    part: Literal["", "outputs", "structure", "tolerance", "call"]
    index: int | None
    output: str
    axes: dict[str, int]
    count: int
    told: str
    original: Number | None
    converted: Number | None
    allowed: Number | None
    exact: Number | None


class StoredContext(Stored, frozen=True):
    """The hashes of both graphs, empty where there is none, and the input sizes for which they hold."""

    digests: tuple[str, ...]
    conditions: tuple[str, ...]


class StoredCertificate(Stored, frozen=True):
    """Whether the second network computes the first."""

    schema: Literal["conv2attn.certificate/3"]
    claim: str
    verdict: Verdict
    strength: Strength
    exit_code: Literal[0, 1, 3]
    layers: list[StoredLayer]
    between: list[StoredFinding]
    outputs: StoredOutputs | None
    assumptions: list[str]
    circumstances: dict[str, str]
    witnesses: list[StoredWitness]
    unshown: list[str]
    context: StoredContext
