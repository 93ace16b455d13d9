#!/usr/bin/env python3
"""An answer as it comes, with Python's standard library only: examples/stream.py [QUESTION]

TESSERA_URL is the server (default http://127.0.0.1:8000), TESSERA_API_KEY a key of it, where it asks for one.
"""

import json
import os
import sys
import urllib.request

URL = os.environ.get("TESSERA_URL", "http://127.0.0.1:8000")


def events(body):
    """The events of a stream (server-sent events), up to [DONE]."""
    request = urllib.request.Request(
        f"{URL}/v1/chat/completions", json.dumps({**body, "stream": True}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('TESSERA_API_KEY', 'none')}"})
    with urllib.request.urlopen(request) as response:
        for line in response:
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield json.loads(line[len(b"data: "):])


def main():
    question = sys.argv[1] if len(sys.argv) > 1 else "Count from 3 to 9."
    for event in events({"messages": [{"role": "user", "content": question}], "temperature": 0}):
        if "error" in event:  # the stream ends with it
            sys.exit(event["error"]["message"])
        for choice in event["choices"]:
            print(choice["delta"].get("content") or "", end="", flush=True)
    print()


main()
