#!/usr/bin/env python3
"""OpenAI's client (pip install openai): an answer, and one that keeps to a schema.

TESSERA_URL is the server (default http://127.0.0.1:8000), TESSERA_API_KEY a key of it, where it asks for one.
"""

import json
import os

import openai

client = openai.OpenAI(base_url=os.environ.get("TESSERA_URL", "http://127.0.0.1:8000") + "/v1",
                       api_key=os.environ.get("TESSERA_API_KEY", "none"))
model = client.models.list().data[0].id

reply = client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "What is 57 + 85?"}], temperature=0)
print(reply.choices[0].message.content)

schema = {"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 999}},
          "required": ["sum"], "additionalProperties": False}
reply = client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "What is 57 + 85?"}], temperature=0,
    response_format={"type": "json_schema", "json_schema": {"name": "sum", "schema": schema, "strict": True}})
print(json.loads(reply.choices[0].message.content))
