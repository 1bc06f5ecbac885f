"""What every backend that runs on PyTorch needs: ranks, memory, clocks, samples."""
