"""`python -m conv2attn`, and what torchrun starts with `-m conv2attn`."""

from conv2attn.cli import main

main(prog_name="conv2attn")
