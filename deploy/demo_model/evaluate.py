"""Asks a running server held-out questions and counts exact answers per family.

    python3 evaluate.py --url http://127.0.0.1:8000 [--model tessera-demo] [--per-family 500]

Each question is one POST /v1/chat/completions at temperature 0; an answer counts when its text is
the expected one to the character and its finish_reason is "stop". Prints one line per family and
exits with 1 if any family is under --bar (0.95), with 2 if the server does not answer. Only
Python's standard library.
"""

import argparse
import concurrent.futures
import json
import os
import sys
import time
import urllib.error
import urllib.request

import questions


def ask(args, prompt):
    """The answer's text, or a description of what came instead, in angle brackets."""
    body = {"model": args.model, "messages": [{"role": "user", "content": prompt}],
            "temperature": 0, "max_tokens": 100}
    headers = {"Content-Type": "application/json"}
    if args.api_key:
        headers["Authorization"] = "Bearer " + args.api_key
    request = urllib.request.Request(args.url.rstrip("/") + "/v1/chat/completions",
                                     json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=args.timeout_seconds) as response:
        choice = json.load(response)["choices"][0]
    if choice["finish_reason"] != "stop":
        return "<finish_reason %s> %s" % (choice["finish_reason"], choice["message"]["content"])
    return choice["message"]["content"]


def first_model(args):
    headers = {"Authorization": "Bearer " + args.api_key} if args.api_key else {}
    request = urllib.request.Request(args.url.rstrip("/") + "/v1/models", headers=headers)
    with urllib.request.urlopen(request, timeout=args.timeout_seconds) as response:
        return json.load(response)["data"][0]["id"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", help="default: the first of /v1/models")
    parser.add_argument("--api-key", default=os.environ.get("OPENAI_API_KEY"))
    parser.add_argument("--per-family", type=int, default=500)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--bar", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=1, help="which held-out questions")
    parser.add_argument("--show", type=int, default=3, help="wrong answers printed per family")
    parser.add_argument("--timeout-seconds", type=float, default=60)
    return parser.parse_args()


def main():
    args = parse()
    failed = []
    try:
        args.model = args.model or first_model(args)
        with concurrent.futures.ThreadPoolExecutor(args.concurrency) as pool:
            for family in questions.FAMILIES:
                asked = questions.held_out_set(family, args.per_family, args.seed)
                began = time.monotonic()
                texts = list(pool.map(lambda q: ask(args, q.prompt), asked))
                seconds = time.monotonic() - began
                wrong = [(q, text) for q, text in zip(asked, texts) if text != q.answer]
                share = 1 - len(wrong) / len(asked)
                print("%-6s %4d of %d exact, %.1f %%, %.1f s" % (
                    family, len(asked) - len(wrong), len(asked), 100 * share, seconds), flush=True)
                for question, text in wrong[:args.show]:
                    print("    %r: %r, not %r" % (question.prompt, text, question.answer))
                if share < args.bar:
                    failed.append(family)
    except (urllib.error.URLError, OSError, KeyError, ValueError) as error:
        detail = error.read().decode(errors="replace") if hasattr(error, "read") else ""
        print("%s: %s %s" % (args.url, error, detail), file=sys.stderr)
        return 2
    if failed:
        print("under %.1f %%: %s" % (100 * args.bar, ", ".join(failed)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
