"""The role that decides: claims calls, feeds their sessions, releases what they approve."""
