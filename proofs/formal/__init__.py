"""The statements of the claims and their proofs in Coq, and the program that asks Coq what was proved."""
