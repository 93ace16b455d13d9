#!/bin/bash
# One question over HTTP: examples/chat.sh [QUESTION]
#
#   TESSERA_URL       the server; default http://127.0.0.1:8000
#   TESSERA_API_KEY   a key of --api-key, where the server asks for one
set -euo pipefail

question=${1:-What is 57 + 85?}
body=$(python3 -c 'import json, sys; print(json.dumps({
    "messages": [{"role": "user", "content": sys.argv[1]}], "temperature": 0}))' "$question")
curl --silent --show-error --fail-with-body "${TESSERA_URL:-http://127.0.0.1:8000}/v1/chat/completions" \
  -H 'Content-Type: application/json' -H "Authorization: Bearer ${TESSERA_API_KEY:-none}" -d "$body" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"])'
