"""Benchmarks of gitmem: `python -m benchmarks` runs them all, side by side with what they are compared to."""
