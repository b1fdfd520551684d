"""Speed and memory of the engines beside native convolutions: `python -m benchmarks` writes README.md and results/."""
