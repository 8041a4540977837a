"""Pages of HTML: one file each, no network, no scripts, light and dark, for the screen and for paper."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from pulsetrain import __version__


def page(template: str, **values: object) -> str:
    """A page from the template of this name. Text of users is escaped by it."""
    environment = Environment(
        loader=PackageLoader("pulsetrain.views"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{template}.html.j2").render(version=__version__, **values)
