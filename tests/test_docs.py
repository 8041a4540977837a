"""The pages: what is generated is fresh, what is written by hand names things that exist, examples run."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pulsetrain import catalog, settings
from pulsetrain.cli.bench import BenchGroup, BenchRun
from pulsetrain.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    page for pattern in ("*.md", "docs/**/*.md", "tests/**/*.md", "benchmarks/**/*.md") for page in ROOT.glob(pattern)
)
USER_PAGES = [page for page in PAGES if page.parent in (ROOT, DOCS, DOCS / "developer") and page.name != "commands.md"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def file_block(page: Path, file: str) -> str:
    """The block of a page that says, in its first line, which file it belongs to."""
    (found,) = [block for block in blocks(page, r"\w+") if block.startswith(f"# {file}\n")]
    return found.partition("\n")[2]


# What is generated


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run([sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    assert f"\n## pulsetrain {command}\n" in (DOCS / "commands.md").read_text()
    assert f"`pulsetrain {command}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(command: str) -> None:
    found = cli.get_command(click.Context(cli), command)
    assert found and found.short_help == COMMANDS[command]


@pytest.mark.parametrize("picture", sorted(DOCS.glob("images/*.svg")), ids=lambda path: path.name)
def test_pictures_load_nothing_from_elsewhere(picture: Path) -> None:
    assert re.findall(r"https?://[^\"' )]+", picture.read_text()) == ["http://www.w3.org/2000/svg"]


# Links


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Commands


def commands_in(page: Path) -> Iterator[list[str]]:
    """The arguments of each call of pulsetrain that a page shows, in a block or, with arguments, within a sentence."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    for line in [*lines, *re.findall(r"`(pulsetrain \w+ [^`]+)`", prose(page))]:
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            del words[0]
        if words and words[0] == "pulsetrain":
            yield words[1 : words.index("|") if "|" in words else None]


def parse(command: click.Command, name: str, arguments: list[str], parent: click.Context | None = None) -> None:
    """Raise what click would for a wrong command, option or value. Nothing is called."""
    ctx = click.Context(command, parent, name, **command.context_settings)
    if isinstance(command, BenchGroup):
        arguments = command.with_command(arguments)
    if isinstance(command, BenchRun):
        arguments, _ = command.split(arguments)
    values, rest, given = command.make_parser(ctx).parse_args(list(arguments))
    for parameter in given:
        value = values[parameter.name or ""]
        if value and isinstance(value, str | tuple | list | bool):  # else it is an argument that was not given
            parameter.type_cast_value(ctx, value)
        elif parameter.required:
            raise click.MissingParameter(ctx=ctx, param=parameter)
    if isinstance(command, click.Group) and rest:
        found = command.get_command(ctx, rest[0])
        if found is None:
            raise click.UsageError(f"no such command: {rest[0]}")
        parse(found, rest[0], rest[1:], ctx)
    elif rest:
        raise click.UsageError(f"unexpected: {rest}")


@pytest.mark.parametrize("page", USER_PAGES, ids=name_of)
def test_commands_in_pages_parse(page: Path) -> None:
    for arguments in commands_in(page):
        try:
            parse(cli, "pulsetrain", arguments)
        except click.UsageError as error:
            pytest.fail(f"pulsetrain {shlex.join(arguments)}: {error.format_message()}")


@pytest.mark.parametrize(
    "line", ["bogus", "run", "run --bogus -- x", "sample --log-level loud", "runs bogus", "runs prune --keep much"]
)
def test_a_wrong_command_in_a_page_would_be_found(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(cli, "pulsetrain", line.split())


def test_make_targets_in_pages_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for page in USER_PAGES:
        named = re.findall(r"^make (?:\w+=\S+ )?(\w+)|`make (?:\w+=\S+ )?(\w+)", page.read_text(), re.MULTILINE)
        assert {block or line for block, line in named} <= set(targets)


# Examples


def test_the_settings_file_in_the_guide_is_valid(tmp_path: Path) -> None:
    (example,) = blocks(DOCS / "guide.md", "toml")
    (tmp_path / "pulsetrain.toml").write_text(example)
    assert settings.load(tmp_path / "pulsetrain.toml").interval == 0.5


def test_lines_in_the_pages_carry_declared_fields_only() -> None:
    declared = {label.name for table in catalog.SAMPLE_TABLES for label in table.labels}
    declared |= {metric.field for metric in catalog.METRICS} | {"timestamp", "elapsed_seconds"}
    lines = [json.loads(line) for line in blocks(DOCS / "run-folder.md", "json")]
    samples = [line for line in lines if "kind" not in line]
    assert len(samples) >= 3
    assert [field for sample in samples for field in sample if field not in declared] == []


def test_every_kind_of_event_is_documented() -> None:
    sources = "\n".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    kinds = set(re.findall(r'\bEvent\(\s*"(\w+)"', sources))
    table = (DOCS / "run-folder.md").read_text()
    assert len(kinds) >= 8
    assert {kind for kind in kinds if f"`{kind}`" not in table} == set()


def test_the_first_example_of_reading_a_run_prints_its_power(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PULSETRAIN_")}
    environment |= {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    record = ["run", "--quiet", "--simulate", "2xL4", "--", sys.executable, "-c", "import time; time.sleep(0.2)"]
    subprocess.run([sys.executable, "-m", "pulsetrain", *record], env=environment, cwd=tmp_path, check=True)
    example = blocks(DOCS / "run-folder.md", "python")[0]
    done = subprocess.run([sys.executable, "-c", example], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {line.split()[1] for line in done.stdout.splitlines()} == {"0", "1"}


def test_the_example_source_works_when_its_page_is_followed(tmp_path: Path) -> None:
    page = DOCS / "developer/where-things-live.md"
    package = tmp_path / "pulsetrain"
    shutil.copytree(ROOT / "src/pulsetrain", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=lambda folder, names: {*names} - {"conftest.py"})
    for file, place, step in (
        ("catalog/metrics.py", "METRICS: tuple[Metric, ...] = (\n", "in METRICS of src/pulsetrain/catalog/metrics.py"),
        ("sources/__init__.py", "SOURCES: dict[str, str] = {\n", "in SOURCES of src/pulsetrain/sources/__init__.py"),
    ):
        text = (package / file).read_text()
        assert text.count(place) == 1
        (package / file).write_text(text.replace(place, place + file_block(page, step)))
    (package / "sources/pressure.py").write_text(file_block(page, "src/pulsetrain/sources/pressure.py"))
    (tmp_path / "tests/test_pressure.py").write_text(file_block(page, "tests/sources/test_pressure.py"))

    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PULSETRAIN_HOME": str(tmp_path / "home")}
    own_tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", tmp_path / "tests"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "1 passed" in own_tests.stdout, own_tests.stdout
    doctor = subprocess.run(
        [sys.executable, "-m", "pulsetrain", "doctor", "--json"], env=environment, capture_output=True, text=True
    )
    (finding,) = [finding for finding in json.loads(doctor.stdout) if finding["part"] == "pressure"]
    assert finding["status"] == ("works" if Path("/proc/pressure/io").exists() else "missing")
