"""`sluice eval`: how often policies block what is harmful, and how often what is not, measured on
labelled tool calls.

`dataset` reads cases, `disguises` writes them in other forms, `play` runs them through the session
that decides about real calls, `live` through a running Sluice, `summary` counts, `bounds` compares,
and the modules of the output forms write what was counted.
"""
