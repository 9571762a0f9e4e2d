"""What the pages of the record cost a reader."""
