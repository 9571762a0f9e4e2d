"""What bounds the requests, tokens and money of keys, teams and sessions over all gateways."""
