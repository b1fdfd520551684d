"""How a network attends, asked of its run: where its tokens lie, and which matrices its heads apply."""
