#!/bin/sh
echo "bazel coverage is not supported by this workspace: its report generator is not packaged by Debian" >&2
exit 1
