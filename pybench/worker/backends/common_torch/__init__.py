"""Parts of every backend on PyTorch: ranks, memory, clocks, samples."""
