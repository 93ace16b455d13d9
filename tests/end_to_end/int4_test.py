"""The shipped model as AWQ and as GPTQ: both answer as the same rounded weights do in float32, on a CPU and on the
emulated GPU."""

import json
import pathlib

import int4_folder
from cluster import MODEL, running

FLAGS = ("--dtype", "float32", "--max-model-len", "64", "--max-num-batched-tokens", "64", "--max-num-seqs", "2")
QUESTIONS = ("What is 57 + 85?", "What is 91 - 38?", "Count from 12 to 15.")
EMULATED = ("--device", "cuda-emulated")


def answers(folder, questions=QUESTIONS, worker_flags=()):
    with running(*FLAGS, workers=1, worker_flags=worker_flags, model=str(folder)) as c:
        got = []
        for question in questions:
            body = {"messages": [{"role": "user", "content": question}], "max_tokens": 12, "temperature": 0,
                    "return_token_ids": True}
            status, _, text = c.request("POST", "/v1/chat/completions", body)
            assert status == 200, text
            choice = json.loads(text)["choices"][0]
            got.append((choice["message"]["content"], choice["token_ids"]))
        return got


def test_awq_and_gptq_answer_as_their_rounded_weights_do(tmp):
    folders = {method: int4_folder.write(pathlib.Path(MODEL), tmp / method, method)
               for method in ("plain", "awq", "gptq")}
    sizes = {method: (folder / "model.safetensors").stat().st_size for method, folder in folders.items()}
    assert sizes["awq"] < sizes["plain"] / 4 and sizes["gptq"] < sizes["plain"] / 4, sizes
    wanted = answers(folders["plain"])
    assert wanted[0][0] == "142" and all(tokens for _, tokens in wanted), wanted
    for method in ("awq", "gptq"):
        assert answers(folders[method]) == wanted, method
    assert answers(folders["awq"], QUESTIONS[:1], EMULATED) == wanted[:1]
