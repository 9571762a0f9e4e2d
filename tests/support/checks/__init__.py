"""What must hold, checked from outside."""
