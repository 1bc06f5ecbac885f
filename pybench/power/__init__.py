"""Energy of GPUs with a bound: sensors, traces, estimates; `pybench power` and `PowerSampler`."""
