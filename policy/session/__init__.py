"""The engine: the state machine of one call. Pure and replayable."""
