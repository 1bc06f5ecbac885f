"""Enroot: image files, started as child processes in user namespaces without a daemon; what pyxis starts on Slurm."""
