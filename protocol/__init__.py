"""Values and codecs of all dialects. Pure: no asyncio, no IO, no clock, no randomness."""
