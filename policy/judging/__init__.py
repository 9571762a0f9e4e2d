"""What judges are shown and asked, and how their replies are read."""
