"""Formats by bytes: server-sent events, strict JSON, JSON Schemas, text."""
