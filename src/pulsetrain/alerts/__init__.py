"""The rules at work: rendered for Prometheus and Alertmanager."""
