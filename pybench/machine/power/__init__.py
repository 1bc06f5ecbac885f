"""Sensors of power, and what is known of them.

| module | holds |
|---|---|
| `recorder` | what NVML reads of GPUs, by the native sampler |
| `sampler` | windows and their joules, as one object for Python |
| `rapl` | joules of the host's processors |
| `sensor_models` | what each board's sensor averages over |
| `calibrate`, `calibration_file` | that of one GPU, measured and kept |
| `sensor_probe` | what the sensors of this machine do, read for a few seconds |
"""
