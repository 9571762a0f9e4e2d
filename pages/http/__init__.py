"""The pages over HTTP: one Starlette application, what stands before its views, and connections."""
