"""The configuration of nginx as a cache of shards.

A shard is fetched in slices, each once however many ask for it at a time, and kept whatever its server says of expiry:
shards never change. Nothing but GET and HEAD reaches the server of the shards, and nothing of a client but the path.
"""

import ipaddress
import os
import pwd
import ssl
from urllib.parse import urlsplit

from pulsetrain.deploy.cache.settings import SLICE_MEGABYTES, CacheSettings

KEPT = "30d"
"""How long a slice stays that nobody asks for; the size of the cache may end it earlier."""
ACCESS_LOG = "access.log"
HEALTH = "/healthz"
LOG_FORMAT = (
    '{"code":"$status","cache":"$upstream_cache_status","sent":"$body_bytes_sent",'
    '"fetched":"$upstream_bytes_received","asked":"$request_length"}'
)
"""One line for each slice. `asked` is 0 for all but the last of a request's lines, which alone says what was sent."""
_WORKERS = ("nobody", "www-data")
"""Who nginx' workers are when root starts it."""


def configuration(settings: CacheSettings) -> str:
    folder = settings.folder
    temporary = "\n".join(
        f"    {kind}_temp_path {folder}/tmp/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    allowed = "\n".join(f"        allow {one};" for one in ("127.0.0.0/8", "::1", *settings.networks))
    return f"""\
# Written by `pulsetrain cache serve` at each start.
{_user()}daemon off;
worker_processes auto;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{
    worker_connections 4096;
}}
http {{
    log_format slices escape=json '{LOG_FORMAT}';
    access_log {folder}/{ACCESS_LOG} slices;
    log_subrequest on;
    server_tokens off;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 75s;
{temporary}
    proxy_cache_path {folder}/shards levels=1:2 keys_zone=shards:32m max_size={_megabytes(settings)}m
        inactive={KEPT} use_temp_path=off;

    server {{
        listen {_listen(settings)};
{allowed}
        deny all;

        location = {HEALTH} {{
            allow all;
            access_log off;
            default_type text/plain;
            return 200 "ok\\n";
        }}
        location / {{
            limit_except GET {{
                deny all;
            }}
            if ($args) {{
                return 400;  # the key has no query: an answer to one would be given to all
            }}
            slice {SLICE_MEGABYTES}m;
            proxy_cache shards;
            proxy_cache_key $uri$slice_range;
            proxy_cache_valid 200 206 {KEPT};
            proxy_cache_lock on;
            proxy_cache_lock_timeout 5m;
            proxy_cache_lock_age 5m;
            proxy_cache_use_stale error timeout updating http_500 http_502 http_503 http_504;
            proxy_ignore_headers Cache-Control Expires Set-Cookie Vary X-Accel-Expires;
            proxy_http_version 1.1;
            proxy_set_header Range $slice_range;
            proxy_set_header Host {_host(settings)};
            proxy_set_header Connection "";
            proxy_set_header Authorization "";
            proxy_set_header Cookie "";
            proxy_set_header Accept-Encoding "";
            proxy_connect_timeout 10s;
            proxy_read_timeout 60s;
            add_header X-Cache $upstream_cache_status always;
{_tls(settings)}            proxy_pass {settings.upstream.rstrip("/")}/;
        }}
    }}
}}
"""


def worker() -> pwd.struct_passwd | None:
    """The user of nginx' workers, where root starts it; else they are whoever starts it."""
    if os.geteuid() != 0:
        return None
    known = {user.pw_name: user for user in pwd.getpwall()}
    return next(known[name] for name in (*_WORKERS, "root") if name in known)


def _user() -> str:
    user = worker()
    if user is None:
        return ""
    import grp

    return f"user {user.pw_name} {grp.getgrgid(user.pw_gid).gr_name};\n"


def _megabytes(settings: CacheSettings) -> int:
    return max(SLICE_MEGABYTES, int(settings.gigabytes * 1000))


def _listen(settings: CacheSettings) -> str:
    is_v6 = ipaddress.ip_address(settings.address).version == 6
    return f"[{settings.address}]:{settings.port}" if is_v6 else f"{settings.address}:{settings.port}"


def _host(settings: CacheSettings) -> str:
    return urlsplit(settings.upstream).netloc


def _tls(settings: CacheSettings) -> str:
    if not settings.upstream.startswith("https:"):
        return ""
    lines = ["proxy_ssl_server_name on;", f"proxy_ssl_name {urlsplit(settings.upstream).hostname};"]
    if authorities := ssl.get_default_verify_paths().cafile:
        lines += ["proxy_ssl_verify on;", "proxy_ssl_verify_depth 5;", f"proxy_ssl_trusted_certificate {authorities};"]
    return "".join(f"            {line}\n" for line in lines)
