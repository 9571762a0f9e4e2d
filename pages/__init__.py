"""The pages under /debug: the record for people. A process of its own, so that no page can stall a
stream."""
