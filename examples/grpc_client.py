#!/usr/bin/env python3
"""A question over gRPC, from proto/inference.proto (pip install grpcio-tools).

TESSERA_GRPC is the server (default 127.0.0.1:8001), TESSERA_API_KEY a key of it, where it asks for one.
"""

import os
import pathlib
import sys

import grpc

# protos_and_services looks for files where Python looks for modules.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "proto"))
messages, services = grpc.protos_and_services("inference.proto")

key = [("authorization", f"Bearer {os.environ.get('TESSERA_API_KEY', 'none')}")]
request = messages.ChatRequest(messages=[messages.ChatMessage(role="user", content="What is 57 + 85?")],
                               options=messages.GenerationOptions(temperature=0))
with grpc.insecure_channel(os.environ.get("TESSERA_GRPC", "127.0.0.1:8001")) as channel:
    stub = services.InferenceStub(channel)
    for chunk in stub.StreamChat(request, metadata=key):
        print(chunk.choice.text, end="", flush=True)
    print()
