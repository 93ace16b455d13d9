// Drafts change no token: whatever a source proposes, each choice gets the events that it gets
// without them.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/catch_skip.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/engine/scripted_drafts.h"
#include "tests/worker/engine/scripted_engine.h"
#include "worker/engine/grammar_compiler.h"

namespace tessera::worker {
namespace {

constexpr int32_t kStop = 49;

EngineOptions Options() {
  EngineOptions options = SmallOptions();
  options.limits = {64, 8, 64, 4, 100};
  options.eos_token_ids = {kStop};
  options.all_drafts = true;
  return options;
}

std::vector<std::string> Words() {
  std::vector<std::string> words;
  for (char c = 'a'; c <= 'z'; ++c) words.emplace_back(1, c);
  for (char c = '0'; c <= '9'; ++c) words.emplace_back(1, c);
  for (const char* word : {"ab", "12", "a1", "[", "]", ","}) words.emplace_back(word);
  return words;
}

// For a model whose layers keep a state of each sequence, some of which are kept for later prompts.
EngineOptions WithStates(EngineOptions options, int64_t snapshots) {
  options.seats = options.limits.max_sequences;
  options.snapshots = snapshots;
  return options;
}

// What can change which token is drawn, or who hears of it.
std::vector<v1::Submit> AllKinds() {
  std::vector<v1::Submit> submits;
  const auto add = [&](int32_t tokens, float temperature) {
    const uint64_t id = submits.size() + 1;
    submits.push_back(MakeSubmit(id, Prompt(5 + 3 * static_cast<int64_t>(id), id), tokens));
    submits.back().mutable_sampling()->set_temperature(temperature);
    submits.back().mutable_sampling()->set_seed(1000 + id);
    return &submits.back();
  };
  add(30, 0)->set_ignore_eos(true);
  add(30, 0.6F)->set_ignore_eos(true);
  add(30, 1)->set_ignore_eos(true);
  add(1, 1);
  add(2, 1);
  v1::Submit* submit = add(25, 1);
  submit->mutable_sampling()->set_top_k(7);
  submit->mutable_sampling()->set_top_p(0.9F);
  submit = add(40, 0.6F);  // penalties
  submit->set_ignore_eos(true);
  submit->mutable_sampling()->set_repetition_penalty(1.3F);
  submit->mutable_sampling()->set_presence_penalty(0.7F);
  submit->mutable_sampling()->set_frequency_penalty(0.4F);
  add(20, 1)->set_choice_count(3);
  submit = add(40, 1);  // stop ids, not before a while
  for (const int32_t id : {3, 17, 30, 41}) submit->add_stop_token_ids(id);
  submit->set_min_tokens(6);
  submit = add(20, 0.6F);
  submit->set_top_logprobs(3);
  submit->set_prompt_logprobs(1);
  submit = add(40, 2);  // bans that follow the output
  submit->set_ignore_eos(true);
  for (int32_t id = 0; id < 12; ++id) submit->add_allowed_token_ids(id);
  for (int32_t id = 0; id < 12; ++id) {
    v1::TokenSequence* word = submit->add_bad_words();
    word->add_ids(id);
    word->add_ids((id + 5) % 12);
  }
  submit = add(30, 1);
  submit->mutable_thinking_budget()->set_tokens(9);
  submit->mutable_thinking_budget()->set_closing_id(7);
  for (const int32_t id : {8, 9, 7}) submit->mutable_thinking_budget()->add_end_ids(id);
  add(500, 0)->set_ignore_eos(true);  // to the end of the context
  return submits;
}

void CheckSame(const Told& got, const Told& expected) {
  CHECK(got.tokens == expected.tokens);
  CHECK(got.positions == expected.positions);
  CHECK(got.finish == expected.finish);
  CHECK(got.stop_token_ids == expected.stop_token_ids);
  CHECK(got.error == expected.error);
  REQUIRE(got.logprobs.size() == expected.logprobs.size());
  for (size_t i = 0; i < got.logprobs.size(); ++i) {
    REQUIRE(got.logprobs[i].SerializeAsString() == expected.logprobs[i].SerializeAsString());
  }
}

// The streams of those that ran, as a source knows them: of several choices one after the other.
KnownStreams StreamsOf(Harness& h, const std::vector<v1::Submit>& submits) {
  KnownStreams streams;
  for (const v1::Submit& submit : submits) {
    for (int32_t choice = 0; choice < submit.choice_count(); ++choice) {
      std::vector<int32_t>& stream =
          streams.emplace_back(submit.prompt_token_ids().begin(), submit.prompt_token_ids().end());
      const std::vector<int32_t>& answer = h.Of(submit.submission_id(), choice).tokens;
      stream.insert(stream.end(), answer.begin(), answer.end());
    }
  }
  return streams;
}

uint64_t Accepted(const v1::EngineLoad& load) {
  uint64_t sum = 0;
  for (const uint64_t tokens : load.accepted_draft_tokens()) sum += tokens;
  return sum;
}

TEST_CASE("every choice is told the same with drafts of any kind, and any number of them") {
  const EngineOptions plain =
      GENERATE(Options(), WithStates(Options(), 0), WithStates(Options(), 6));
  CAPTURE(plain.seats, plain.snapshots);
  const std::vector<v1::Submit> submits = AllKinds();
  Harness without(plain);
  for (const v1::Submit& submit : submits) without.Submit(submit);
  without.RunAll();
  const KnownStreams streams = StreamsOf(without, submits);
  for (const DraftScript script : kDraftScripts) {
    for (int64_t most = 1; most <= kMaxDrafts; ++most) {
      CAPTURE(static_cast<int>(script), most);
      EngineOptions options = plain;
      options.draft_source = ScriptedDraftsOf(streams, script, options.vocabulary);
      options.max_drafts = most;
      if (most % 2 == 0) options.limits.total_blocks = 52;  // some are preempted
      if (most % 3 == 0) options.limits.max_batched_tokens = 12;
      Harness h(options);
      for (const v1::Submit& submit : submits) h.Submit(submit);
      h.RunAll();
      for (const auto& [choice, expected] : without.told) {
        CAPTURE(choice.first, choice.second);
        CheckSame(h.Of(choice.first, choice.second), expected);
      }
      const v1::EngineLoad& load = h.core->load();
      CHECK((load.drafts() > 0) == (script != DraftScript::kEmpty));
      CHECK(load.generation_tokens() == without.core->load().generation_tokens());
      if (script == DraftScript::kWrong) CHECK(Accepted(load) < load.draft_tokens() / 5);
      if (script == DraftScript::kRight) CHECK(Accepted(load) > load.draft_tokens() * 4 / 5);
    }
  }
}

TEST_CASE("a source that is always right, at temperature 1, costs one step for seven tokens") {
  EngineOptions options = GENERATE(Options(), WithStates(Options(), 0));
  v1::Submit submit = MakeSubmit(1, Prompt(9, 4), 71);
  submit.set_ignore_eos(true);
  submit.mutable_sampling()->set_temperature(1);
  Harness without(options);
  without.Submit(submit);
  without.RunAll();
  options.draft_source = ScriptedDraftsOf(StreamsOf(without, {submit}), DraftScript::kRight, 50);
  Harness h(options);
  h.Submit(submit);
  h.RunAll();
  CHECK(h.Of(1).tokens == without.Of(1).tokens);
  CHECK(without.core->load().steps() == 71);
  CHECK(h.core->load().steps() == 1 + 10);
  CHECK(h.core->load().drafts() == 10);
  CHECK(h.core->load().draft_tokens() == 60);
  CHECK(Accepted(h.core->load()) == 60);
  REQUIRE(h.core->load().accepted_draft_tokens_size() == 6);
  CHECK(h.core->load().accepted_draft_tokens(5) == 10);
}

TEST_CASE("events say what was tried, and how much of that stands") {
  EngineOptions options = Options();
  v1::Submit submit = MakeSubmit(1, Prompt(9, 4), 12);
  submit.set_ignore_eos(true);
  Harness without(options);
  without.Submit(submit);
  without.RunAll();
  options.draft_source = ScriptedDraftsOf(StreamsOf(without, {submit}), DraftScript::kHalf, 50);
  options.max_drafts = 4;
  Harness h(options);
  EngineCore::Events events;
  h.core->Submit(submit, 0, &events);
  std::vector<std::pair<int32_t, int32_t>> drafts;  // by event
  while (h.core->Busy()) h.core->Step([] { return 0.0; }, &events);
  for (const v1::TokenEvent& event : events) {
    drafts.emplace_back(event.draft_tokens(), event.accepted_draft_tokens());
  }
  // One without, then steps of three tokens while four drafts fit before the end, and of one.
  using Pairs = std::vector<std::pair<int32_t, int32_t>>;
  CHECK(drafts == Pairs{{0, 0},
                        {4, 2},
                        {0, 0},
                        {0, 0},
                        {4, 2},
                        {0, 0},
                        {0, 0},
                        {4, 2},
                        {0, 0},
                        {0, 0},
                        {1, 0},
                        {0, 0}});
}

TEST_CASE("drafts that stand are in the prefix cache, others are not") {
  EngineOptions options = GENERATE(Options(), WithStates(Options(), 8));
  std::vector<int32_t> turn = Prompt(21, 9);
  v1::Submit submit = MakeSubmit(1, turn, 12);
  submit.set_ignore_eos(true);
  Harness without(options);
  without.Submit(submit);
  without.RunAll();
  for (const DraftScript script : {DraftScript::kRight, DraftScript::kWrong, DraftScript::kHalf}) {
    options.draft_source = ScriptedDraftsOf(StreamsOf(without, {submit}), script, 50);
    Harness h(options);
    h.Submit(submit);
    h.RunAll();
    std::vector<int32_t> next = turn;
    next.insert(next.end(), h.Of(1).tokens.begin(), h.Of(1).tokens.end());
    next.push_back(7);
    h.Submit(MakeSubmit(2, next, 5));
    h.RunAll();
    CHECK(h.Of(2).cached_tokens == 32);  // 21 + 12 - 1 computed tokens, full blocks of 4
    CHECK(h.Of(2).tokens == h.Greedy(next, 5));
  }
}

TEST_CASE("a draft that the grammar refuses ends the list; the mask of each row is its own") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const auto run = [](const DraftSourceFactory& source, v1::EngineLoad* load) {
    EngineOptions options = Options();
    options.draft_source = source;
    Harness h(options);
    std::vector<std::pair<KvKey, std::string>> asked;
    h.core->SetCompile(
        [&](const KvKey& key, const std::string& text) { asked.emplace_back(key, text); });
    std::vector<v1::Submit> submits;
    for (uint64_t id = 1; id <= 8; ++id) {
      v1::Submit submit = MakeSubmit(id, Prompt(5, id), 30);
      submit.set_grammar("root ::= \"[\" ([0-9] [a-z] \",\")+ \"]\"");
      submit.mutable_sampling()->set_temperature(2);
      submit.mutable_sampling()->set_seed(id);
      if (id % 2 == 0) submit.mutable_sampling()->set_frequency_penalty(0.5F);
      submits.push_back(submit);
      h.Submit(submit);
    }
    const GrammarCompiler::Compile compile = CompileFor(Words(), 50);
    for (const auto& [key, text] : asked) h.core->OnGrammar(key, compile(text), &h.events);
    h.RunAll();
    *load = h.core->load();
    return std::pair(h.told, StreamsOf(h, submits));
  };
  v1::EngineLoad load;
  const auto [expected, streams] = run(nullptr, &load);
  CHECK(load.drafts() == 0);
  for (const DraftScript script : kDraftScripts) {
    CAPTURE(static_cast<int>(script));
    const auto [told, unused] = run(ScriptedDraftsOf(streams, script, 50), &load);
    REQUIRE(told.size() == expected.size());
    for (const auto& [choice, of] : expected) CheckSame(told.at(choice), of);
    if (script == DraftScript::kRight) CHECK(Accepted(load) == load.draft_tokens());
    // Next to a right id stands one that the grammar refuses, but for letters and digits.
    if (script == DraftScript::kWrong) CHECK(load.draft_tokens() < 6 * load.drafts());
  }
}

TEST_CASE("64 lists in a row of which nothing stands end the drafting of a sequence") {
  EngineOptions options = Options();
  options.max_model_len_tokens = 300;
  v1::Submit submit = MakeSubmit(1, Prompt(9, 4), 150);
  submit.set_ignore_eos(true);
  Harness without(options);
  without.Submit(submit);
  without.RunAll();
  options.draft_source = ScriptedDraftsOf(StreamsOf(without, {submit}), DraftScript::kWrong, 50);
  Harness h(options);
  h.Submit(submit);
  h.RunAll();
  CHECK(h.Of(1).tokens == without.Of(1).tokens);
  CHECK(h.core->load().drafts() == Drafter::kMaxMisses);
}

TEST_CASE("once no sequence drafts any more, a head has nothing to do") {
  EngineOptions options = LaneOptions();
  options.limits.max_logit_rows = 40;
  options.limits.total_blocks = 64;
  options.head_drafts = options.all_drafts = true;
  const ScriptedEngine knows(options, 1);
  KnownStreams streams = {Prompt(9, 1)};
  const std::vector<int32_t> answer = knows.workers->Expected(streams[0], 0, 150);
  streams[0].insert(streams[0].end(), answer.begin(), answer.end());
  for (const DraftScript script : {DraftScript::kWrong, DraftScript::kRight}) {
    options.draft_source = ScriptedDraftsOf(streams, script, options.vocabulary);
    ScriptedEngine engine(options, 1);
    engine.Submit(Wants(1, 9, 150));
    engine.RunAll();
    CHECK(engine.heard[{1, 0}].tokens == answer);
    const std::vector<int32_t>& wanted = engine.workers->draft_tokens;
    CHECK(wanted.front() == options.max_drafts);
    CHECK(wanted.back() == (script == DraftScript::kWrong ? -1 : options.max_drafts));
  }
}

TEST_CASE("no more drafts are tried than pay: few where none stands") {
  EngineOptions options = LaneOptions();
  options.limits.max_logit_rows = 40;
  options.limits.total_blocks = 64;
  const ScriptedEngine knows(options, 1);
  KnownStreams streams = {Prompt(9, 1)};
  const std::vector<int32_t> answer = knows.workers->Expected(streams[0], 0, 150);
  streams[0].insert(streams[0].end(), answer.begin(), answer.end());
  for (const DraftScript script : {DraftScript::kWrong, DraftScript::kHalf, DraftScript::kRight}) {
    options.draft_source = ScriptedDraftsOf(streams, script, options.vocabulary);
    ScriptedEngine engine(options, 1);  // whose steps all take as long
    engine.Submit(Wants(1, 9, 150));
    engine.RunAll();
    CHECK(engine.heard[{1, 0}].tokens == answer);
    const v1::EngineLoad& load = engine.core->load();
    if (script == DraftScript::kWrong) CHECK(load.drafts() < 20);
    if (script == DraftScript::kHalf) CHECK(load.steps() < 150 * 2 / 3);
    if (script == DraftScript::kRight) CHECK(load.steps() < 150 / 4);
  }
}

TEST_CASE("who is cancelled among drafts, or outlived by them, leaves nothing") {
  EngineOptions options = Options();
  v1::Submit submit = MakeSubmit(1, Prompt(9, 4), 60);
  submit.set_ignore_eos(true);
  submit.set_choice_count(2);
  submit.mutable_sampling()->set_temperature(1);
  Harness without(options);
  without.Submit(submit);
  without.RunAll();
  options.draft_source = ScriptedDraftsOf(StreamsOf(without, {submit}), DraftScript::kHalf, 50);
  Harness h(options);
  h.Submit(submit);
  for (int i = 0; i < 4; ++i) h.Step();
  h.Cancel(1, 0);
  h.RunAll();
  CHECK(h.Of(1, 0).finish == v1::FINISH_REASON_CANCELLED);
  CHECK(h.Of(1, 0).tokens.size() < 40);
  CHECK(h.Of(1, 1).tokens == without.Of(1, 1).tokens);
}

TEST_CASE("an answer's states are kept at the same places with drafts") {
  EngineOptions options = WithStates(Options(), 8);
  const std::vector<int32_t> turn = Prompt(21, 9);
  v1::Submit submit = MakeSubmit(1, turn, 60);
  submit.set_ignore_eos(true);
  Harness without(options);
  without.Submit(submit);
  without.RunAll();
  const KnownStreams streams = StreamsOf(without, {submit});
  for (const DraftScript script : kDraftScripts) {
    for (const int64_t most : {1, 3, 6}) {
      CAPTURE(static_cast<int>(script), most);
      options.draft_source = ScriptedDraftsOf(streams, script, 50);
      options.max_drafts = most;
      Harness h(options);
      h.Submit(submit);
      h.RunAll();
      CHECK(h.Of(1).tokens == without.Of(1).tokens);
      h.Submit(MakeSubmit(2, streams[0], 5));
      h.RunAll();
      CHECK(h.Of(2).cached_tokens == 80);  // every fourth block of 4
      CHECK(h.Of(2).tokens == h.Greedy(streams[0], 5));
    }
  }
}

TEST_CASE("drafts in several lanes, and where steps run ahead") {
  for (const int lanes : {1, 2, 3}) {
    for (const bool ahead : {false, true}) {
      if (ahead && lanes > 1) continue;
      for (const DraftScript script : kDraftScripts) {
        CAPTURE(lanes, ahead, static_cast<int>(script));
        EngineOptions options = LaneOptions();
        options.limits.max_logit_rows = 40;
        options.all_drafts = true;
        KnownStreams streams;
        const ScriptedEngine knows(options, 1);
        for (uint64_t id = 1; id <= 9; ++id) {
          streams.push_back(Prompt(3 + 2 * id, id));
          const auto answer = knows.workers->Expected(streams.back(), 0, 25);
          streams.back().insert(streams.back().end(), answer.begin(), answer.end());
        }
        options.draft_source = ScriptedDraftsOf(streams, script, options.vocabulary);
        ScriptedEngine engine(options, lanes, ahead);
        for (uint64_t id = 1; id <= 9; ++id) {
          v1::Submit submit = Wants(id, 3 + 2 * static_cast<int64_t>(id), 25);
          submit.set_choice_count(id % 4 == 0 ? 2 : 1);
          engine.Submit(submit);
        }
        engine.RunAll();
        for (const auto& [choice, heard] : engine.heard) {
          CHECK(heard.tokens == engine.Expected(choice, 25));
        }
        CHECK((engine.core->load().drafts() > 0) == (script != DraftScript::kEmpty));
        if (ahead && script == DraftScript::kEmpty) CHECK(engine.workers->begun_ahead > 20);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker
