"""Values and codecs of the two dialects. Pure: no asyncio, no IO, no clock, no randomness."""
