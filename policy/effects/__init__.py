"""What a tool call would do: to files, hosts, databases, secrets, and by commands of a shell."""
