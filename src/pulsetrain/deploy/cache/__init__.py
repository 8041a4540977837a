"""`pulsetrain cache serve`: an nginx of the machine keeps the shards of datasets near those who train on them."""
