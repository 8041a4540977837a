"""Live state for any view: machines and runs as they are watched, with their past. Nothing here draws."""
