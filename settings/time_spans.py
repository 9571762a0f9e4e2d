"""A span of time as people write it."""

_UNITS = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "hours"), (120, 60, "minutes"))


def span(seconds: float) -> str:
    """Return for example `2.5 s`, `60.0 minutes` or `45.0 days`."""
    for least, unit, name in _UNITS:
        if seconds >= least:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"
