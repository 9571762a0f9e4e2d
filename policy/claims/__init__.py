"""Who says where the project of a call is: settings, headers, and what agents write into their own
requests."""
