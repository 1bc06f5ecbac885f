"""One module for each way to share a training step; each offers ``learner``."""
