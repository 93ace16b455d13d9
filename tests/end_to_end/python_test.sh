#!/bin/bash
# Runs a Python file of tests with the system's Python: python_test.sh FILE
exec python3 tests/end_to_end/run_tests.py "$@"
