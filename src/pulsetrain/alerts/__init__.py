"""What is worth waking somebody for: rules, declared once, and their form for Prometheus and Alertmanager."""
