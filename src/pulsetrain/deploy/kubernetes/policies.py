"""Who may talk to what: by default nobody, and nothing of ours asks anybody but those named here."""

from pulsetrain.deploy.kubernetes.objects import COMPONENT, PART_OF, Object, labels, make_object

SCRAPERS = "pulsetrain.dev/scrapes"
"""A label of namespaces whose pods may scrape."""
SCRAPER_NAMESPACES = (
    "monitoring",
    "prometheus",
    "gmp-system",
    "openshift-monitoring",
    "openshift-user-workload-monitoring",
)
"""Where Prometheus usually is."""
DNS: Object = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def network_policy(
    component: str,
    *,
    ingress_port: int,
    scraped: bool = False,
    scrape_port: int | None = None,
    clients: tuple[str, ...] = (),
    egress: tuple[Object, ...] = (),
) -> Object:
    """Pods of `component` are asked by those of the components `clients`, in any namespace, and by Prometheus."""
    rules: list[Object] = []
    if clients:
        selector = {
            "matchLabels": {PART_OF: "pulsetrain"},
            "matchExpressions": [{"key": COMPONENT, "operator": "In", "values": list(clients)}],
        }
        rules.append({"from": [{"namespaceSelector": {}, "podSelector": selector}], "ports": _ports(ingress_port)})
    if scraped:
        named = [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(SCRAPER_NAMESPACES)}]
        rules.append(
            {
                "from": [
                    {"namespaceSelector": {"matchExpressions": named}},
                    {"namespaceSelector": {"matchLabels": {SCRAPERS: "true"}}},
                ],
                "ports": _ports(scrape_port or ingress_port),
            }
        )
    return make_object(
        "NetworkPolicy",
        f"pulsetrain-{component}",
        component,
        api="networking.k8s.io/v1",
        spec={
            "podSelector": {"matchLabels": labels(component)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": rules,
            "egress": list(egress),
        },
    )


def _ports(port: int) -> list[Object]:
    return [{"port": port, "protocol": "TCP"}]
