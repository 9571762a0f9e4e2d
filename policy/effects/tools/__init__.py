"""Tools of agents and MCP servers by name: what their arguments are, and what they stand for."""
