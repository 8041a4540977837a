"""`pulsetrain cloud`: GPU machines and clusters of Google Cloud, through the tools that people have signed in."""
