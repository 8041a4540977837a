"""Results and gates as JUnit XML, which continuous integration shows."""

from collections.abc import Sequence
from xml.etree import ElementTree

from pulsetrain.bench.gate import GatedBenchmark
from pulsetrain.bench.results import BenchmarkResult, Results
from pulsetrain.untrusted import showable

COUNTED = {"failures": "failure", "skipped": "skipped"}


def results_xml(results: Results) -> bytes:
    """A test case for each benchmark; a run of it that did not finish is a failure."""
    return _document("pulsetrain bench", [_benchmark(result) for result in results.benchmarks])


def gate_xml(gated: Sequence[GatedBenchmark]) -> bytes:
    """A test case for each figure. A worse figure is a failure, an uncertain one is skipped."""
    return _document("pulsetrain bench gate", [case for one in gated for case in _gated(one)])


def _benchmark(result: BenchmarkResult) -> ElementTree.Element:
    seconds = sum((repeat.end - repeat.start).total_seconds() for repeat in result.repeats)
    case = _case(result.name, "bench", f"{seconds:.3f}")
    for repeat in result.failed:
        text = f"{repeat.folder} {repeat.status}: {repeat.reason}"
        ElementTree.SubElement(case, "failure", message=showable(text)).text = showable(text)
    if not result.repeats:
        ElementTree.SubElement(case, "skipped", message="not run")
    properties = ElementTree.SubElement(case, "properties")
    for key, figure in result.figures.items():
        ElementTree.SubElement(properties, "property", name=key, value=repr(figure.median))
    return case


def _gated(one: GatedBenchmark) -> list[ElementTree.Element]:
    if not one.figures:
        return [_verdict(_case("all", one.name, "0"), one.verdict, one.reason)]
    cases = []
    for figure in one.figures:
        change = f"{figure.base:g} to {figure.value:g} {figure.unit}"
        if figure.difference:
            low, high = 100 * figure.difference.low, 100 * figure.difference.high
            change += f", {100 * figure.difference.change:+.1f} % (between {low:+.1f} % and {high:+.1f} %)"
        reason = "; ".join(filter(None, (change, figure.reason)))
        cases.append(_verdict(_case(figure.key, one.name, "0"), figure.verdict, reason))
    return cases


def _verdict(case: ElementTree.Element, verdict: str, reason: str) -> ElementTree.Element:
    kind = {"worse": "failure", "cannot tell": "skipped"}.get(verdict, "system-out")
    text = showable(f"{verdict}: {reason}" if reason else verdict)
    entry = ElementTree.SubElement(case, kind)
    if kind == "system-out":
        entry.text = text
    else:
        entry.set("message", text)
    return case


def _case(name: str, group: str, seconds: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", name=showable(name), classname=showable(group), time=seconds)


def _document(name: str, cases: Sequence[ElementTree.Element]) -> bytes:
    counts = {kind: str(sum(case.find(tag) is not None for case in cases)) for kind, tag in COUNTED.items()}
    suite = ElementTree.Element("testsuite", {"name": name, "tests": str(len(cases)), "errors": "0", **counts})
    suite.extend(cases)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)) + b"\n"
