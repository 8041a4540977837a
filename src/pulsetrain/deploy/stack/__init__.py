"""`pulsetrain stack`: Prometheus, Grafana, Alertmanager and exporters on one machine, with our dashboards and rules."""
