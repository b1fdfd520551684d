"""Processes forked from one that has imported libraries, but nothing of this package: there is one for all tests."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["flint", "hypothesis", "pytest", "scipy.optimize", "torch._dynamo", "torch.distributed", "torch.export._trace"]
)
