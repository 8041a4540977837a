"""The one address that changes something: it deletes a run, where `serve --allow-delete` lets it."""

import logging
from typing import Any

from pulsetrain.errors import PulsetrainError
from pulsetrain.views.web.api import Document, NotFound
from pulsetrain.views.web.site import Site

log = logging.getLogger(__name__)

_PROBLEM = {"$ref": "#/components/responses/Problem"}
DESCRIPTION: dict[str, Any] = {
    "summary": "Deletes a run that has ended, with all its files. Needs `pulsetrain serve --allow-delete`.",
    "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
    "responses": {
        "200": {"description": "The run was deleted.", "content": {"application/json": {"schema": {"type": "object"}}}},
        "403": _PROBLEM | {"description": "This server does not delete runs, or the request is from another origin."},
        "404": _PROBLEM,
        "409": _PROBLEM | {"description": "The run may still be in progress."},
        "503": _PROBLEM,
    },
}
"""In OpenAPI."""


class DeletingOff(PulsetrainError):
    """The user did not allow it."""


def delete_run(site: Site, id: str) -> Document:
    """Delete a run that has ended."""
    if not site.allow_delete:
        raise DeletingOff(
            "this server does not delete runs.", hint="Start it with --allow-delete, or use pulsetrain runs remove."
        )
    if not site.remove(id):
        raise NotFound(f"there is no run {id!r}.")
    log.info("run %s was deleted from the web page", id)
    return {"deleted": id}
