#!/usr/bin/env python3
"""An agent's loop with two tools, by OpenAI's client (pip install openai); for a model that knows tools.

TESSERA_URL is the server (default http://127.0.0.1:8000), TESSERA_API_KEY a key of it, where it asks for one.
"""

import json
import os

import openai

TOOLS = {
    "weather": (lambda city="": "sun", {"city": {"type": "string"}}),
    "clock": (lambda: "noon", {}),
}

client = openai.OpenAI(base_url=os.environ.get("TESSERA_URL", "http://127.0.0.1:8000") + "/v1",
                       api_key=os.environ.get("TESSERA_API_KEY", "none"))
model = client.models.list().data[0].id
tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
         for name, (_, properties) in TOOLS.items()]
messages = [{"role": "user", "content": "Weather and time?"}]
for _ in range(5):
    message = client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message
    messages.append(message.to_dict())
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        function, _ = TOOLS[call.function.name]
        result = function(**json.loads(call.function.arguments))
        print(f"{call.function.name}({call.function.arguments}) gives {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(messages[-1]["content"])
