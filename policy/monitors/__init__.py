"""Monitors: what measures a tool call. Each has a module of its own; `policy.monitors.table` names
them all."""
