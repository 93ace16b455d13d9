"""--speculate: answers are those of `off`, whatever is asked, and say what was drafted; a worker killed meanwhile changes
nothing. Likewise of a model whose layers keep states, by n-grams and by its own head for further tokens, and of a model
for which another one drafts. auto says what it chose and why."""

import json
import subprocess
import sys
import threading

from cluster import KILL, MODEL, running

sys.path.insert(0, "tests/bench")
import random_model  # noqa: E402

FLOAT32 = ("--dtype", "float32", "--max-num-seqs", "8")
REPEATS = "one two three four five six seven eight nine ten eleven twelve. " * 6
REQUESTS = [
    {"prompt": REPEATS, "max_tokens": 200, "ignore_eos": True, "temperature": 0},
    {"prompt": REPEATS, "max_tokens": 120, "ignore_eos": True, "temperature": 0.6, "seed": 3},
    {"prompt": REPEATS, "max_tokens": 80, "ignore_eos": True, "temperature": 1, "seed": 4, "n": 3},
    {"prompt": "Count from 3 to 90.", "max_tokens": 150, "temperature": 0},
    {"prompt": REPEATS, "max_tokens": 120, "ignore_eos": True, "temperature": 0.6, "seed": 5, "presence_penalty": 0.4,
     "repetition_penalty": 1.1},
    {"prompt": REPEATS, "max_tokens": 40, "temperature": 0, "logprobs": 3},
]


def ask(c, **request):
    status, _, text = c.request("POST", "/v1/completions", {"return_token_ids": True, "timings": True, **request})
    assert status == 200, text
    return json.loads(text)


def answers(c):
    """What each request is given, and the drafts of all."""
    given, tried, accepted = [], 0, 0
    for request in REQUESTS:
        answer = ask(c, **request)
        given.append([(one["token_ids"], one["text"], one["finish_reason"], one["logprobs"]) for one in answer["choices"]])
        drafts = answer["timings"]["decode"]["drafts"] or {"tokens": 0, "accepted_tokens": 0}
        tried, accepted = tried + drafts["tokens"], accepted + drafts["accepted_tokens"]
    return given, tried, accepted


def stops_of(c, text):
    """Ends at stop strings that begin anywhere in `text`, an answer to the second request, each asked alone."""
    said = []
    for at in range(0, len(text) - 4, max(1, len(text) // 10)):
        answer = ask(c, **REQUESTS[1], stop=[text[at:at + 4]])["choices"][0]
        said.append((answer["text"], answer["token_ids"], answer["finish_reason"]))
    return said


def test_answers_are_those_without_and_say_what_was_drafted():
    with running(*FLOAT32, workers=1) as c:
        expected, tried, _ = answers(c)
        assert tried == 0
        text = expected[1][0][1]
        stops = stops_of(c, text)
        assert sum(finish == "stop" for _, _, finish in stops) > 5, (text, stops)
        assert "DRAFTS" not in c.status_text()
    with running(*FLOAT32, "--speculate", "ngram", workers=1) as c:
        given, tried, accepted = answers(c)
        assert given == expected
        assert 0 < accepted <= tried, (accepted, tried)
        assert stops_of(c, text) == stops
        metrics = c.metrics()
        drafted = sum(v for k, v in metrics.items() if k.startswith("vllm:spec_decode_num_draft_tokens_total"))
        stood = sum(v for k, v in metrics.items() if k.startswith("vllm:spec_decode_num_accepted_tokens_total"))
        assert drafted >= tried and stood >= accepted, (drafted, tried, stood, accepted)
        by_place = [v for k, v in metrics.items() if k.startswith("vllm:spec_decode_num_accepted_tokens_per_pos_total")]
        assert sum(by_place) == stood, (by_place, stood)
        assert "TOKENS EACH" in c.status_text(), c.status_text()


def test_streams_survive_their_worker():
    def collect(c, said, began):
        for event in c.stream({**REQUESTS[1], "return_token_ids": True}):
            assert "error" not in event, event
            said += [token for choice in event["choices"] for token in choice["token_ids"]]
            if len(said) > 10:
                began.set()

    with running(*FLOAT32, workers=1) as c:
        expected = ask(c, **REQUESTS[1])["choices"][0]["token_ids"]
    with running(*FLOAT32, "--speculate", "ngram") as c:
        said, began = [], threading.Event()
        thread = threading.Thread(target=collect, args=(c, said, began))
        thread.start()
        assert began.wait(60)
        busy = [k.split('engine="r-')[1].split("/")[0] for k, v in c.metrics().items()
                if k.startswith("vllm:num_requests_running") and v > 0]
        for name in busy or ["w0"]:  # none: it is over already
            c.signal(name, KILL)
        thread.join()
        assert said == expected


def test_models_with_states_and_a_head(tmp):
    random_model.write(tmp / "model", layers=4, hidden=128, heads=4, kv_heads=2, head_dim=32, ffn=192, context=512,
                       delta=(4, 8, 16), draft_head=True)
    model = str(tmp / "model")
    with running(*FLOAT32, workers=1, model=model) as c:
        expected, tried, _ = answers(c)
        assert tried == 0
    with running(*FLOAT32, "--speculate", "ngram", workers=1, model=model) as c:
        assert answers(c)[0] == expected
    with running(*FLOAT32, "--speculate", "mtp", workers=1, model=model) as c:
        given, tried, _ = answers(c)
        assert given == expected
        assert tried > 0
        assert "TOKENS EACH" in c.status_text(), c.status_text()


def test_a_draft_model(tmp):
    random_model.write(tmp / "model", layers=4, hidden=128, heads=4, kv_heads=2, ffn=192, context=512)
    random_model.write(tmp / "draft", layers=1, hidden=64, heads=2, kv_heads=2, ffn=96, context=512, seed=2)
    model = str(tmp / "model")
    with running(*FLOAT32, workers=1, model=model) as c:
        expected, tried, _ = answers(c)
        assert tried == 0
    with running(*FLOAT32, "--speculate", f"draft:{tmp / 'draft'}", workers=1, model=model) as c:
        given, tried, _ = answers(c)
        assert given == expected
        assert tried > 0
        assert f"speculation: draft model {tmp / 'draft'}" in c.status_text(), c.status_text()
    # A model that drafts for itself is right, also where tokens are drawn.
    with running(*FLOAT32, "--speculate", f"draft:{model}", workers=1, model=model) as c:
        for request in REQUESTS[:3]:
            drafts = ask(c, **request)["timings"]["decode"]["drafts"]
            assert drafts["tokens"] == drafts["accepted_tokens"] > 0, drafts


def refusal(model, *flags):
    """What a coordinator says that does not start."""
    done = subprocess.run(["coordinator/tessera-coordinator", model, "--port", "0", *flags], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode != 0, done.stderr
    return done.stderr


def test_draft_models_that_cannot_draft_are_refused(tmp):
    said = refusal(MODEL, "--speculate", f"draft:{tmp / 'nowhere'}")
    assert str(tmp / "nowhere") in said and "--speculate draft:" in said, said
    random_model.write(tmp / "other", layers=1, hidden=64, heads=2, kv_heads=2, ffn=96, context=512)
    tokenizer = json.loads((tmp / "other" / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = [text for text, number in vocabulary.items() if number in (70, 71)]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (tmp / "other" / "tokenizer.json").write_text(json.dumps(tokenizer))
    said = refusal(MODEL, "--speculate", f"draft:{tmp / 'other'}")
    assert "token 70 is" in said and "same family" in said, said
    random_model.write(tmp / "states", layers=4, hidden=64, heads=2, kv_heads=2, head_dim=32, ffn=96, context=512,
                       delta=(2, 4, 16))
    said = refusal(MODEL, "--speculate", f"draft:{tmp / 'states'}")
    assert "gated delta nets" in said and "--speculate ngram" in said, said


def test_auto_says_what_it_chose_and_why(tmp):
    random_model.write(tmp / "head", layers=4, hidden=64, heads=2, kv_heads=2, head_dim=32, ffn=96, context=512,
                       delta=(2, 4, 16), draft_head=True)
    for model, flags, says in ((MODEL, FLOAT32, "ngram (auto: the model has no head"),
                               (str(tmp / "head"), FLOAT32, "mtp (auto: the model has a head"),
                               (str(tmp / "head"), ("--dtype", "bfloat16"), "off (auto: it computes in fewer than 32 bits")):
        with running(*flags, "--speculate", "auto", workers=1, model=model) as c:
            assert "speculation: " + says in c.status_text(), c.status_text()
            assert "speculation: " + says in (c.folder / "coordinator.log").read_text()
            drafts = ask(c, **REQUESTS[0])["timings"]["decode"]["drafts"]
            assert (drafts is None) == says.startswith("off"), (says, drafts)


def test_plans_count_on_the_drafts_that_were_accepted():
    request = {"cluster": {"machines": [{"name": "a", "devices": [{"kind": "RTX4090"}]}]},
               "workload": {"classes": [{"lengths": [{"prompt_tokens": 100, "output_tokens": 100}]}]},
               "options": {"speculate": "ngram"}}

    def plan(c, **options):
        status, _, body = c.request("POST", "/v1/plan", {**request, "options": {**request["options"], **options}})
        assert status == 200, body
        return json.loads(body)

    def lists(c):
        return sum(v for k, v in c.metrics().items() if k.startswith("tessera_drafts_total"))

    with running(*FLOAT32, "--speculate", "ngram", workers=1) as c:
        assert "counted for nothing" in plan(c)["text"]
        for seed in range(40):
            ask(c, **REQUESTS[0], n=8, seed=seed)
            if lists(c) >= 500:
                break
        measured = plan(c)
        drafts = measured["plan"]["assumptions"]["planning"]["drafts"]
        assert drafts["acceptance_origin"] == "FIGURE_ORIGIN_MEASURED" and 0 < drafts["acceptance"] <= 1, drafts
        assert "measured, by what workers tried" in measured["text"], measured["text"]
        given = plan(c, draft_acceptance=0.25)["plan"]["assumptions"]["planning"]["drafts"]
        assert given["acceptance"] == 0.25, given


def test_a_model_without_a_head_is_refused():
    said = refusal(MODEL, "--speculate", "mtp")
    assert "no head for further tokens" in said and "--speculate ngram" in said, said


def test_what_is_no_kind_of_speculation_is_refused():
    for flags in (["--speculate", "eagle"], ["--speculate", "draft:"], ["--speculate", "ngram", "--speculate-tokens", "7"]):
        said = refusal(MODEL, *flags)
        assert flags[-2] in said, said
