"""The thin pipe between clients, upstreams and Redis. Never imports `policy`, never reads a request
body, never decides about content."""
