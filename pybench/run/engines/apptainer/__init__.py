"""Apptainer: image files, started as child processes without a daemon."""
