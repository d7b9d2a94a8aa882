"""NVML behind a process of its own: `client` is the daemon's side, `child` the only place that imports `pynvml`."""
