"""Sending what is read to a server: by Prometheus remote write, to VictoriaMetrics, to a Pushgateway, by OTLP."""
