"""Built-in models: the demo model, and the scripted model that plays files."""
