#!/usr/bin/env python3
"""Adds up a `bazel test`: tally.py EVENTS_FILE BAZEL_EXIT_CODE

Reads the events that Bazel wrote (--build_event_json_file) and the test.xml that each test of this
very run left; files of earlier runs are never looked at. Prints what failed and what was skipped,
and as its last line `N passed, N failed` (`, N skipped` where there are any). Exits 0 only if Bazel
succeeded, nothing failed, something ran, and nothing was skipped that must not be.

Seven reasons for a skip are good anywhere: a missing GPU ("no GPU: ..." or "no CUDA ..."), a client
that cannot be fetched here ("cannot be installed: ..."), a build without xgrammar for the same reason
("no xgrammar: ..."), a machine without a browser ("no Chromium: ...") or without etcd ("no etcd: ..."),
one without root or a mirror of Debian's to make a bare system of ("no chroot: ..."), and a system that forbids network
namespaces ("no network namespaces: ..."). Any other counts as a failure, unless the
environment variable ALLOWED_SKIPS lists the test's label (words, or `all`).
"""

import json
import os
import re
import sys
import urllib.parse
import xml.etree.ElementTree


def read_events(path):
    """Bazel's events; a line cut short by a killed Bazel ends them."""
    events = []
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                events.append(json.loads(line))
    except (OSError, ValueError):
        pass
    return events


def xml_path(result):
    for output in result.get("testActionOutput", []):
        if output.get("name") == "test.xml":
            return urllib.parse.unquote(urllib.parse.urlparse(output.get("uri", "")).path)
    return ""


# Reasons that hold on any machine that lacks the thing; tests/catch_skip.h and run_tests.py carry them.
GOOD_REASON = re.compile(r"no GPU\b|no CUDA\b|no xgrammar: |no Chromium: |cannot be installed: |no network namespaces: |no etcd: |no chroot: ")


def may_skip(label, reason):
    allowed = os.environ.get("ALLOWED_SKIPS", "").split()
    # Published chat templates and vocabularies are not part of the project.
    good = GOOD_REASON.match(reason) is not None or reason.startswith(("no chat templates: ", "no vocabularies: "))
    return good or label in allowed or "all" in allowed


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = 0

    def fail(self, label, reason):
        self.failed += 1
        print(f"FAILED  {label}: {reason}")

    def add_case(self, label, case):
        name = case.get("name", "?")
        if case.find("failure") is not None or case.find("error") is not None:
            self.fail(label, name)
        elif case.find("skipped") is not None:
            reason = case.find("skipped").get("message", "")
            if may_skip(label, reason):
                self.skipped += 1
                print(f"SKIPPED {label}: {name}: {reason}")
            else:
                self.fail(label, f"{name}: skipped, and that is no reason to: {reason or 'none is given'}"
                                 f" (ALLOWED_SKIPS={label} lets it pass)")
        else:
            self.passed += 1

    def add_result(self, label, result):
        """One run of one test. Whatever did not pass counts as at least one failure."""
        status = result.get("status", "NO_STATUS")
        failed_before = self.failed
        try:
            cases = list(xml.etree.ElementTree.parse(xml_path(result)).getroot().iter("testcase"))
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            self.fail(label, f"{status.lower()}, and its report can't be read: {error}")
            return
        for case in cases:
            self.add_case(label, case)
        if self.failed > failed_before:
            return
        if status != "PASSED":
            self.fail(label, status.lower())
        elif not cases:
            self.fail(label, "ran no test case")


def tally(events, bazel_exit_code):
    total = Tally()
    tests = set()
    results = {}
    for event in events:
        event_id = event.get("id", {})
        if "targetConfigured" in event_id:
            if event.get("configured", {}).get("targetKind", "").endswith("_test rule"):
                tests.add(event_id["targetConfigured"]["label"])
        elif "testResult" in event_id:
            key = event_id["testResult"]
            # A later attempt of the same run replaces an earlier one.
            results[(key["label"], key.get("run"), key.get("shard"))] = event.get("testResult", {})
            if int(key.get("attempt", 1)) > 1:
                print(f"AGAIN   {key['label']}: failed at attempt {int(key['attempt']) - 1}")
    for (label, _, _), result in sorted(results.items(), key=lambda item: str(item[0])):
        total.add_result(label, result)
    tested = {label for label, _, _ in results}
    for event in events:
        completed = event.get("id", {}).get("targetCompleted", {}).get("label")
        if completed in tests - tested and not event.get("completed", {}).get("success"):
            total.fail(completed, "did not build")
    if bazel_exit_code not in (0, 4) and total.failed == 0:
        total.fail("bazel", f"exit code {bazel_exit_code}")
    return total


def main():
    total = tally(read_events(sys.argv[1]), int(sys.argv[2]))
    line = f"{total.passed} passed, {total.failed} failed"
    print(line + (f", {total.skipped} skipped" if total.skipped else ""))
    ran = total.passed + total.skipped > 0
    return 0 if total.failed == 0 and ran and int(sys.argv[2]) == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
