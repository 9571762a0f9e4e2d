"""Scripted providers, one for each dialect that upstreams speak, written from the vendors' own
shapes and without our codecs."""
