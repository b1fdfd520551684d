"""Processes forked from one that has imported libraries, but nothing of this package: there is one for all tests."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
PLUGINS = ["anyio.pytest_plugin", "pytest_timeout", "xdist.looponfail", "xdist.plugin"]
"""What pytest imports when it starts in a fork, where it is installed."""
LIBRARIES = ["flint", "hypothesis", "pytest", "scipy.optimize", "torch._dynamo", "torch.distributed"]
FORKS.set_forkserver_preload([*PLUGINS, *LIBRARIES, "torch.export._trace"])
