"""The web application: which address answers what, errors as JSON, static files, and the description of the API."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pulsetrain import __version__
from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.runs.folder import RunMayLive
from pulsetrain.views.web import api, deleting
from pulsetrain.views.web.deleting import DeletingOff, delete_run
from pulsetrain.views.web.site import Site

if TYPE_CHECKING:
    from starlette.types import ASGIApp

API = "/api/v1"
GZIP_LEVEL = 3
RUN = "/runs/{id}"
PAGES = ("/", "/run/{id}", "/compare", "/machine", "/api")
"""Addresses at which the page itself is answered; what it shows there is its own matter."""
TYPES = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml", "txt": "text/plain"}
STATIC = "static"
ABOUT = "Runs and machines. Everything is read-only, except deleting runs where `pulsetrain serve --allow-delete` "
"allows it."

Id = Annotated[str, msgspec.Meta(max_length=200, description="The id of a run: the name of its folder.")]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12, description="Elapsed seconds of the run.")]
Keys = Annotated[list[str], msgspec.Meta(min_length=1, max_length=api.MOST_CHARTS)]


class NoQuery(msgspec.Struct, frozen=True):
    """A question without parameters."""


class SeriesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which charts, which part of the run, how finely."""

    chart: Keys
    start: Seconds | None = None
    end: Seconds | None = None
    points: Annotated[int, msgspec.Meta(ge=2, le=api.MOST_POINTS, description="Maximum for each line.")] = 800
    smooth: Annotated[float, msgspec.Meta(ge=0, le=0.5, description="Share of the time to smooth over.")] = 0.0


class CsvQuery(msgspec.Struct, frozen=True, kw_only=True):
    chart: str
    start: Seconds | None = None
    end: Seconds | None = None


class FiguresQuery(msgspec.Struct, frozen=True, kw_only=True):
    run: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=60)]


class CompareQuery(msgspec.Struct, frozen=True, kw_only=True):
    run: Annotated[list[Id], msgspec.Meta(min_length=2, max_length=12)]


class RangeQuery(msgspec.Struct, frozen=True, kw_only=True):
    start: Seconds
    end: Seconds


class MachineQuery(msgspec.Struct, frozen=True, kw_only=True):
    seconds: Annotated[float, msgspec.Meta(ge=10, le=1e6)] = 900.0


class FleetQuery(msgspec.Struct, frozen=True, kw_only=True):
    seconds: Annotated[float, msgspec.Meta(ge=60, le=1e6)] = 3600.0
    host: Annotated[str, msgspec.Meta(max_length=200, description="Only this node.")] = ""


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True):
    topic: Annotated[list[str], msgspec.Meta(min_length=1, max_length=50, description="`run:ID`, `machine`.")]


@dataclass(frozen=True)
class Endpoint:
    """One address of the API."""

    path: str
    summary: str
    query: type[msgspec.Struct]
    answer: Callable[[Site, str, Any], Any]
    """From the site, the id in the address (or nothing) and the query to a document."""
    content_type: str = "application/json"


def endpoints() -> list[Endpoint]:
    """All that answer with a whole document."""
    return [
        Endpoint("/catalog", "Every metric and every group of charts.", NoQuery, _catalog),
        Endpoint("/runs", "All runs, those in progress first.", NoQuery, _runs),
        Endpoint("/figures", "Figures of runs in a list.", FiguresQuery, _figures),
        Endpoint(RUN, "A run, and which charts it has.", NoQuery, lambda site, id, _: api.run_document(site, id)),
        Endpoint(
            "/runs/{id}/series",
            "Charts between two times: min, max and last for each pixel.",
            SeriesQuery,
            lambda site, id, q: api.series_document(site, id, q.chart, q.start, q.end, q.points, q.smooth),
        ),
        Endpoint(
            "/runs/{id}/report",
            "What the report of a run says.",
            NoQuery,
            _report,
        ),
        Endpoint(
            "/runs/{id}/events",
            "What happened during a run.",
            NoQuery,
            _events,
        ),
        Endpoint(
            "/runs/{id}/processes",
            "The processes of a run.",
            NoQuery,
            _processes,
        ),
        Endpoint(
            "/runs/{id}/csv",
            "Every reading of a chart, as CSV.",
            CsvQuery,
            lambda site, id, q: api.csv_rows(site, id, q.chart, q.start, q.end),
            "text/csv",
        ),
        Endpoint(
            "/runs/{id}/changes",
            "What else changed in a part of a run, compared with the time before it.",
            RangeQuery,
            _changes,
        ),
        Endpoint("/compare", "Runs side by side.", CompareQuery, _compare),
        Endpoint(
            "/machine",
            "The machines in view, now and before.",
            MachineQuery,
            _machine,
        ),
        Endpoint("/fleet", "All nodes of a Prometheus-compatible server.", FleetQuery, _fleet),
    ]


def _catalog(site: Site, id: str, query: NoQuery) -> api.Document:
    return api.catalog_document() | {"fleet": site.fleet is not None, "delete": site.allow_delete}


def _fleet(site: Site, id: str, query: FleetQuery) -> api.Document:
    if site.fleet is None:
        raise api.NotFound("this server does not show a fleet.", hint="Start it with --from http://victoria:8428.")
    return site.fleet.document(query.seconds, query.host)


def _runs(site: Site, id: str, query: NoQuery) -> list[api.Document]:
    return [api.run_summary(name, run) for name, run in site.runs()]


def _figures(site: Site, id: str, query: FiguresQuery) -> dict[str, api.Document]:
    folders = site.folders()
    return site.list_figures.read([folders[name] for name in query.run if name in folders])


# What reads reports is imported when somebody first asks for it: it is most of the time that a start would take.


def _report(site: Site, id: str, query: NoQuery) -> api.Document:
    from pulsetrain.views.web.reporting import report_document

    return report_document(site, id)


def _events(site: Site, id: str, query: NoQuery) -> list[api.Document]:
    from pulsetrain.views.web.reporting import events_document

    return events_document(site, id)


def _processes(site: Site, id: str, query: NoQuery) -> list[api.Document]:
    from pulsetrain.views.web.reporting import processes_document

    return processes_document(site, id)


def _changes(site: Site, id: str, query: RangeQuery) -> list[api.Document]:
    from pulsetrain.views.web.reporting import changes_document

    return changes_document(site, id, query.start, query.end)


def _compare(site: Site, id: str, query: CompareQuery) -> api.Document:
    from pulsetrain.views.web.comparing import compare_document

    return compare_document(site, query.run)


def _machine(site: Site, id: str, query: MachineQuery) -> list[api.Document]:
    from pulsetrain.views.web.machines import machines_document

    return machines_document(site.machines, query.seconds)


def make_app(site: Site) -> "ASGIApp":
    """The application, without the guard around it."""
    found = endpoints()
    description = msgspec.json.encode(openapi(found))
    routes = [Route(f"{API}{endpoint.path}", partial(_answer, site, endpoint)) for endpoint in found]
    routes += [
        Route(f"{API}{RUN}", partial(_delete, site), methods=["DELETE"]),
        Route(f"{API}/stream", partial(_stream, site)),
        Route(f"{API}/openapi.json", lambda request: _whole(request, description, "application/json")),
        Route("/metrics", partial(_metrics, site)),
        Route("/healthz", lambda request: Response("ok\n", media_type="text/plain")),
        Route("/static/{name}", _static),
        *(Route(page, partial(_file, "index.html")) for page in PAGES),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=GZIP_LEVEL)],
        exception_handlers={404: _not_found},
    )
    app.router.redirect_slashes = False
    return app


async def _answer(site: Site, endpoint: Endpoint, request: Request) -> Response:
    try:
        query = _query(request, endpoint.query)
        found = await run_in_threadpool(endpoint.answer, site, request.path_params.get("id", ""), query)
        if endpoint.content_type == "text/csv":
            rows = await run_in_threadpool(lambda: "".join(found))
            headers = {"Content-Disposition": 'attachment; filename="pulsetrain.csv"'}
            return Response(rows, media_type="text/csv", headers=headers)
        body = await run_in_threadpool(_encode, found)
    except api.NotFound as error:
        return _problem(404, error)
    except UsageError as error:
        return _problem(400, error)
    except PulsetrainError as error:
        return _problem(503, error)
    return _whole(request, body, "application/json")


async def _delete(site: Site, request: Request) -> Response:
    try:
        body = _encode(await run_in_threadpool(delete_run, site, request.path_params["id"]))
    except DeletingOff as error:
        return _problem(403, error)
    except api.NotFound as error:
        return _problem(404, error)
    except RunMayLive as error:
        return _problem(409, error)
    except PulsetrainError as error:
        return _problem(503, error)
    return Response(body, media_type="application/json")


async def _stream(site: Site, request: Request) -> Response:
    try:
        query = _query(request, StreamQuery)
        for topic in query.topic:
            kind, _, id = topic.partition(":")
            if kind == "run" and await run_in_threadpool(site.open, id) is None:
                raise api.NotFound(f"there is no run {id!r}.")
    except api.NotFound as error:
        return _problem(404, error)
    except PulsetrainError as error:
        return _problem(400, error)
    view = site.streams.view(query.topic, request.headers.get("last-event-id") or request.query_params.get("since"))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(view, media_type="text/event-stream", headers=headers)


async def _metrics(site: Site, request: Request) -> Response:
    from pulsetrain.outputs import exposition
    from pulsetrain.views.web.scrape import families_of

    format = exposition.negotiate(request.headers.get("accept", ""))
    body = await run_in_threadpool(lambda: exposition.render(families_of(site), format))
    headers = {"Content-Type": exposition.CONTENT_TYPES[format], "Vary": "Accept, Accept-Encoding"}
    return Response(body, headers=headers)


def _query(request: Request, type: type[msgspec.Struct]) -> Any:
    """The parameters of a question, as they are declared."""
    lists = {field.name for field in msgspec.structs.fields(type) if "list" in str(field.type)}
    given: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        given[name] = values if name in lists else values[-1]
    try:
        query = msgspec.convert(given, type, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{error}.") from None
    for field in type.__struct_fields__:
        value = getattr(query, field)
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{field} is not a number.")
    return query


def _encode(document: object) -> bytes:
    return msgspec.json.encode(document)


def _whole(request: Request, body: bytes, content_type: str, *, status: int = 200) -> Response:
    """An answer with its fingerprint: who has it already gets none."""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers=headers, media_type=content_type)


def _problem(status: int, error: PulsetrainError) -> Response:
    document = {"error": error.message} | ({"hint": error.hint} if error.hint else {})
    return Response(msgspec.json.encode(document), status, media_type="application/json")


async def _not_found(request: Request, error: Exception) -> Response:
    return _problem(404, PulsetrainError("page not found."))


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _static_names():
        return await _not_found(request, Exception())
    return await _file(name, request)


async def _file(name: str, request: Request) -> Response:
    body = files(__package__).joinpath(STATIC, name).read_bytes()
    return _whole(request, body, TYPES[name.rpartition(".")[2]])


def _static_names() -> frozenset[str]:
    """The files of the page: nothing else is answered, whatever is asked for."""
    return frozenset(file.name for file in files(__package__).joinpath(STATIC).iterdir())


def openapi(found: Sequence[Endpoint]) -> dict[str, Any]:
    """The description of the API, from what it is made of."""
    paths: dict[str, Any] = {}
    for endpoint in found:
        parameters = (
            [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
            if "{id}" in endpoint.path
            else []
        )
        schema = msgspec.json.schema(endpoint.query)
        described = next(iter(schema["$defs"].values()))
        parameters += [
            {"name": name, "in": "query", "required": name in described.get("required", ()), "schema": about}
            for name, about in described["properties"].items()
        ]
        answers: dict[str, Any] = {"200": {"description": "It.", "content": {endpoint.content_type: {}}}}
        if endpoint.query is not NoQuery:
            answers["400"] = {"$ref": "#/components/responses/Problem"}
        if "{id}" in endpoint.path or endpoint.path in ("/compare", "/fleet"):
            answers["404"] = {"$ref": "#/components/responses/Problem"}
        answers["503"] = {"$ref": "#/components/responses/Problem"}
        paths[f"{API}{endpoint.path}"] = {
            "get": {"summary": endpoint.summary, "parameters": parameters, "responses": answers}
        }
    paths[f"{API}{RUN}"]["delete"] = deleting.DESCRIPTION
    problem = {"type": "object", "properties": {"error": {"type": "string"}, "hint": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pulsetrain", "version": __version__, "description": ABOUT},
        "paths": paths,
        "components": {
            "responses": {
                "Problem": {"description": "What is wrong.", "content": {"application/json": {"schema": problem}}}
            }
        },
    }
