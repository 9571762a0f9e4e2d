"""Monitors measure tool calls. Each has its own module; `policy.monitors.table` lists them."""
