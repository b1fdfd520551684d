"""Lines of symbols whose class is the order of three of them: a convolution of three taps finds it."""

from itertools import permutations

import torch
from torch import Tensor

from conv2attn.lab.data.labelled_images import LabelledImages

SYMBOLS, LENGTH = 8, 48
MOTIFS = tuple(permutations(range(3)))
"""One class each: counts of symbols do not tell them apart."""
TRAINING, TEST, SEED = 4000, 1000, 0


def make_motifs() -> LabelledImages:
    """4,000 and 1,000 lines of 48 symbols, a channel for each of eight: bytes (lines, 8, 48), 255 at the symbol.

    Symbols are drawn at random. Each line has one motif, at a random place and no other anywhere: symbols 0, 1 and 2
    one after the other, whose order is the class.
    """
    generator, pixels, labels = torch.Generator().manual_seed(SEED), list[Tensor](), list[Tensor]()
    while sum(map(len, labels)) < TRAINING + TEST:
        lines = torch.randint(SYMBOLS, (4 * TEST, LENGTH), generator=generator)
        places = torch.randint(LENGTH - 2, (len(lines), 1), generator=generator) + torch.arange(3)
        classes = torch.randint(len(MOTIFS), (len(lines),), generator=generator)
        lines.scatter_(1, places, torch.tensor(MOTIFS)[classes])
        alone = motifs_in(lines).sum((1, 2)) == 1
        pixels.append(torch.nn.functional.one_hot(lines[alone], SYMBOLS).mT.to(torch.uint8) * 255)
        labels.append(classes[alone])
    line, label = torch.cat(pixels)[: TRAINING + TEST], torch.cat(labels)[: TRAINING + TEST]
    parts = (line[:TRAINING], label[:TRAINING], line[TRAINING:], label[TRAINING:])
    names = tuple("".join("abc"[symbol] for symbol in motif) for motif in MOTIFS)
    return LabelledImages("motifs", *parts, names, mirrors=False)


def motifs_in(lines: Tensor) -> Tensor:
    """Whether a motif begins at a place of lines (lines, length): (lines, motifs, length - 2)."""
    windows = lines.unfold(1, 3, 1)
    return torch.stack([(windows == torch.tensor(motif)).all(-1) for motif in MOTIFS], 1)
