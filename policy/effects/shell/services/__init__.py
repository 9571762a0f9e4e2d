"""What commands do with clouds, clusters, forges and databases, besides what they delete there."""
