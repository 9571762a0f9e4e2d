"""The record as a gateway serves it: pages and audit API, passed on to their process."""
