"""The processes behind the gateway: policy workers, judge workers, audit writers."""
