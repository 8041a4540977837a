"""Where samples are pushed: `--push remote-write:https://host/api/v1/write`, or a section `[push.NAME]`."""

import base64
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pulsetrain.errors import UsageError
from pulsetrain.outputs.push import KINDS
from pulsetrain.settings import Push

FORMS = (
    ", ".join(f"{kind}:{about.example_url}" for kind, about in KINDS.items())
    + ", or the NAME of a [push.NAME] section in pulsetrain.toml"
)


@dataclass(frozen=True, kw_only=True)
class PushTarget:
    """One server, how to speak to it, and how to log in."""

    name: str
    spec: str
    """As the command line says it, without a login."""
    kind: str
    """One of `KINDS`."""
    url: str
    """Without a login."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    insecure_skip_verify: bool = False
    interval: float | None = None
    """Seconds between two states that are sent; None is what suits the kind."""
    keep_group: bool = False
    """Whether a Pushgateway keeps the last state when the run has ended."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def authorization(self) -> str | None:
        """The header for it. Files are read each time: a token may be replaced during a run."""
        if token := self.token or (self.token_file and _secret(self.token_file)):
            return f"Bearer {token}"
        if self.username is None:
            return None
        password = _secret(self.password_file) if self.password_file else self.password or ""
        return "Basic " + base64.b64encode(f"{self.username}:{password}".encode()).decode()

    def tls(self) -> ssl.SSLContext | bool:
        """How the server proves who it is; and we, if it wants that."""
        if not (self.ca_file or self.cert_file or self.insecure_skip_verify):
            return True
        try:
            context = ssl.create_default_context(cafile=_expanded(self.ca_file))
            if self.cert_file:
                context.load_cert_chain(Path(self.cert_file).expanduser(), _expanded(self.key_file))
        except (OSError, ValueError) as error:
            raise UsageError(f"the certificates cannot be used: {error}.") from None
        if self.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_targets(specs: Sequence[str], sections: Mapping[str, Push]) -> list[PushTarget]:
    """What `--push` says, each time it is said. Every target has a name of its own."""
    targets: dict[str, PushTarget] = {}
    for spec in dict.fromkeys(filter(None, specs)):
        target = parse_target(spec, sections)
        name, number = target.name, 1
        while name in targets:
            number += 1
            name = f"{target.name}-{number}"
        targets[name] = replace(target, name=name)
    return list(targets.values())


def parse_target(spec: str, sections: Mapping[str, Push]) -> PushTarget:
    """A section of the settings by its name, or else a URL, with a login from the environment."""
    if spec in sections:
        return _of_section(spec, sections[spec])
    kind, url, username, password = _parts(spec)
    return PushTarget(
        name=kind,
        spec=f"{kind}:{url}",
        kind=kind,
        url=url,
        username=username or os.environ.get("PULSETRAIN_PUSH_USER"),
        password=password or os.environ.get("PULSETRAIN_PUSH_PASSWORD"),
        token=None if username else os.environ.get("PULSETRAIN_PUSH_TOKEN"),
    )


def _of_section(name: str, section: Push) -> PushTarget:
    try:
        kind, url, username, password = _parts(section.url)
        target = PushTarget(
            name=name,
            spec=name,
            kind=kind,
            url=url,
            username=section.username or username,
            password=password,
            password_file=section.password_file,
            token_file=section.bearer_token_file,
            headers=section.headers,
            ca_file=section.ca_file,
            cert_file=section.cert_file,
            key_file=section.key_file,
            insecure_skip_verify=section.insecure_skip_verify,
            interval=section.interval,
            keep_group=section.keep_group,
        )
        target.authorization()
        target.tls()  # so that a missing file is reported now
    except UsageError as error:
        raise UsageError(f"[push.{name}]: {error.message}", hint=error.hint) from None
    return target


def _parts(spec: str) -> tuple[str, str, str | None, str | None]:
    """Kind, URL, user and password of `victoriametrics:http://user:password@host:8428`."""
    kind, _, url = spec.partition(":")
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that do not match
        parts = urlsplit("")
    if kind not in KINDS or parts.scheme not in ("http", "https") or not parts.hostname:
        shown = f"{kind}:..." if "@" in spec or "?" in spec else spec
        raise UsageError(f"{shown!r} is not a push target.", hint=f"Use {FORMS}.")
    _, at, host = parts.netloc.rpartition("@")
    plain = parts._replace(netloc=host, path=parts.path.rstrip("/"), fragment="")
    if not at:
        return kind, plain.geturl(), None, None
    return kind, plain.geturl(), unquote(parts.username or ""), unquote(parts.password or "")


def with_path(url: str, path: str) -> str:
    """The URL, with the usual path when it has none."""
    return url if urlsplit(url).path else url + path


def _expanded(file: str | None) -> Path | None:
    return Path(file).expanduser() if file else None


def _secret(file: str) -> str:
    try:
        return Path(file).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from None
