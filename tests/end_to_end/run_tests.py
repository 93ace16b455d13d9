"""Runs every test_* function of one file of this folder: run_tests.py FILE

A file's prepare(), where it has one, runs first; raising Skip there or in a test skips with a reason.
Writes what happened to $XML_OUTPUT_FILE, so that each function counts as a test.
"""

import importlib.util
import inspect
import os
import pathlib
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as xml


class Skip(Exception):
    """Its text says what is missing."""


def load(path):
    sys.dont_write_bytecode = True  # of these files
    sys.path.insert(0, str(path.parent))
    sys.modules["run_tests"] = sys.modules["__main__"]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = False
    return module


def run(function, case):
    """Calls it, notes the outcome in `case`; false if it failed."""
    name = case.get("name")
    began = time.monotonic()
    try:
        wants_folder = "tmp" in inspect.signature(function).parameters
        function(*([pathlib.Path(tempfile.mkdtemp())] if wants_folder else []))
        print(f"ok: {name}, {time.monotonic() - began:.1f} s", flush=True)
    except Skip as reason:
        print(f"SKIPPED: {name}: {reason}", flush=True)
        xml.SubElement(case, "skipped", message=str(reason))
    except Exception:
        print(f"FAILED: {name}", flush=True)
        traceback.print_exc()
        xml.SubElement(case, "failure", message=traceback.format_exc(limit=-1))
        return False
    finally:
        case.set("time", f"{time.monotonic() - began:.3f}")
    return True


def main():
    module = load(pathlib.Path(sys.argv[1]))
    suite = xml.Element("testsuite", name=module.__name__)
    good = True
    tests = [f for name, f in inspect.getmembers(module, inspect.isfunction) if name.startswith("test_")]
    if hasattr(module, "prepare"):
        case = xml.Element("testcase", name="prepare")
        good = run(module.prepare, case)
        if not good or case.find("skipped") is not None:
            suite.append(case)
            tests = []
    for function in tests:
        good = run(function, xml.SubElement(suite, "testcase", name=function.__name__)) and good
    if "XML_OUTPUT_FILE" in os.environ:
        xml.ElementTree(suite).write(os.environ["XML_OUTPUT_FILE"])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
