"""What runs beside pulsetrain: the stack of servers, dashboards, rules."""
