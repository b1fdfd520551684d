"""The mathematics of the sources: one claim a file, each step decided by `core`, each claim beside refuted mutants."""
