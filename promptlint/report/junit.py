"""`junit`: one test suite a file, one failed case a finding; a run that read nothing is a skipped case, never a passed one."""

from __future__ import annotations

from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from promptlint.report.escape import printable
from promptlint.report.model import CheckReport, FindingItem
from promptlint.report.words import cost, summary_line

__all__ = ["junit"]


def junit(report: CheckReport) -> str:
    """A JUnit XML document."""
    findings = sorted(report.findings, key=lambda finding: (finding.path, finding.line, finding.column, finding.rule))
    counts = report.summary
    read = bool(counts.read_fully or counts.read_partly or counts.texts or findings)
    cases = str(len(findings) or 1)
    root = Element("testsuites", name="promptlint", tests=cases, failures=str(len(findings)), errors="0")
    for path, group in groupby(findings, key=lambda finding: finding.path):
        rows = list(group)
        suite = SubElement(
            root, "testsuite", name=_xml(path), tests=str(len(rows)), failures=str(len(rows)), errors="0", skipped="0"
        )
        for finding in rows:
            _case(suite, finding)
    if not findings:
        suite = SubElement(
            root, "testsuite", name="promptlint", tests="1", failures="0", errors="0", skipped=str(int(not read))
        )
        case = SubElement(suite, "testcase", name="promptlint check", classname="promptlint")
        if not read:
            SubElement(case, "skipped", message=_xml(summary_line(report)))
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, finding: FindingItem) -> None:
    path = _xml(finding.path)
    case = SubElement(
        suite,
        "testcase",
        name=f"{finding.rule} at line {finding.line}",
        classname=path,
        file=path,
        line=str(finding.line),
    )
    failure = SubElement(case, "failure", type=f"{finding.severity}[{finding.rule}]", message=_xml(finding.message))
    lines = [f"{finding.path}:{finding.line}:{finding.column}", cost(finding), finding.help]
    failure.text = "\n".join(_xml(line) for line in lines if line)


def _xml(text: str) -> str:
    """Text without the characters that XML 1.0 forbids: controls and surrogates are written out, so are the two non-characters."""
    return printable(text).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
