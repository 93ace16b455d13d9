"""Runs every test_* function of one file of this folder: run_tests.py FILE."""

import importlib.util
import inspect
import pathlib
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True
path = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(path.parent))
spec = importlib.util.spec_from_file_location(path.stem, path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
failed = 0
for name, function in inspect.getmembers(module, inspect.isfunction):
    if not name.startswith("test_"):
        continue
    began = time.monotonic()
    try:
        wants_folder = "tmp" in inspect.signature(function).parameters
        function(*([pathlib.Path(tempfile.mkdtemp())] if wants_folder else []))
        print(f"ok: {name}, {time.monotonic() - began:.1f} s", flush=True)
    except Exception:
        failed += 1
        print(f"FAILED: {name}", flush=True)
        traceback.print_exc()
sys.exit(1 if failed else 0)
