"""The mathematics of the sources: one claim a file, each step decided by `core`, each claim beside refuted mutants."""

CLAIMS = (
    *("L1", "L2a", "L2b", "L2c", "L2d", "L2e", "T1", "T1p", "L3", "L3p", "TAPS", "LIT"),
    *("D2", "A46", "PAD", "STR", "GQ", "AND", "HEADS", "COUNT"),
)
