"""A result as JUnit XML, for the viewers of CI: a test for each category and each bound, not for
each case."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from sluice.eval.table import outcome_lines, rate
from sluice.tables import printable

Result = Mapping[str, Any]


def xml(results: Sequence[Result]) -> str:
    """Return the document. A bound that is not met fails; a category for which no judge answered is
    an error."""
    root = Element("testsuites", name="sluice eval")
    for result in results:
        _suite(root, result)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, result: Result) -> None:
    name = f"policy {result['policy']} ({result['revision']})"
    suite = SubElement(
        root, "testsuite", name=printable(name), time=f"{result['speed']['seconds']:.3f}"
    )
    failures = errors = 0
    for category, of in {"all": result["totals"], **result["categories"]}.items():
        test = SubElement(
            suite,
            "testcase",
            classname=printable(name),
            name=printable(f"category {category or '(none)'}"),
        )
        summary = "; ".join(
            f"{label} blocked {rate(of[label])}, unsure {of[label]['unsure']}"
            for label in ("harmful", "benign")
        )
        SubElement(test, "system-out").text = summary
        if missing := sum(of[label]["errors"] for label in ("harmful", "benign")):
            SubElement(test, "error", message=f"no judge answered for {missing} cases")
            errors += 1
    checks = [(f"--fail-on {bound['expr']}", bound["failed"]) for bound in result["bounds"]]
    if "baseline" in result:
        checks.append(("--baseline", not result["baseline"]["met"]))
    for (what, failed), line in zip(checks, outcome_lines(result), strict=False):
        test = SubElement(suite, "testcase", classname=printable(name), name=printable(what))
        if failed:
            SubElement(test, "failure", message=line)
            failures += 1
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failures))
    suite.set("errors", str(errors))
