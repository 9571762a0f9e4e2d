"""Tool calls in text: models write them, and models without native tools are instructed to."""
