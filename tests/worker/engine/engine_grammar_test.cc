// Submissions with a grammar: they wait for its compile, draw what it lets them, and end where it
// may end; preempted, with several choices, and from where an earlier attempt stopped.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/catch_skip.h"
#include "tests/worker/engine/engine_harness.h"
#include "worker/engine/grammar_compiler.h"

namespace tessera::worker {
namespace {

constexpr int32_t kStop = 49;

// Ids 0 to 25 are letters, 26 to 35 digits, some are words; the rest has no bytes.
std::vector<std::string> Words() {
  std::vector<std::string> words;
  for (char c = 'a'; c <= 'z'; ++c) words.emplace_back(1, c);
  for (char c = '0'; c <= '9'; ++c) words.emplace_back(1, c);
  for (const char* word : {"ab", "12", "a1", "[", "]", ","}) words.emplace_back(word);
  return words;
}

EngineOptions Options() {
  EngineOptions options = SmallOptions();
  options.eos_token_ids = {kStop};
  return options;
}

// Compiles when CompileAll is called.
class GrammarHarness : public Harness {
 public:
  explicit GrammarHarness(const EngineOptions& options) : Harness(options) {
    core->SetCompile(
        [this](const KvKey& key, const std::string& grammar) { asked.emplace_back(key, grammar); });
  }

  void CompileAll() {
    static const GrammarCompiler::Compile compile = CompileFor(Words(), 50);
    for (const auto& [key, grammar] : std::exchange(asked, {}))
      core->OnGrammar(key, compile(grammar), &events);
    RunEvents();
  }
  void RunEvents() { Cancel(999'999); }  // collects events

  std::string TextOf(uint64_t id, int32_t choice = 0) {
    std::string text;
    for (const int32_t token : Of(id, choice).tokens) {
      if (token != kStop) text += Words().at(token);
    }
    return text;
  }

  std::vector<std::pair<KvKey, std::string>> asked;
};

v1::Submit WithGrammar(uint64_t id, const std::string& grammar, int32_t max_tokens) {
  v1::Submit submit = MakeSubmit(id, Prompt(5, static_cast<uint32_t>(id)), max_tokens);
  submit.set_grammar(grammar);
  submit.mutable_sampling()->set_temperature(3);
  submit.mutable_sampling()->set_seed(id);
  return submit;
}

bool IsTwoDigits(const std::string& text) {
  return text.size() == 2 && isdigit(text[0]) && isdigit(text[1]);
}

constexpr char kTwoDigits[] = "root ::= [0-9] [0-9]";

TEST_CASE("a grammar holds the output, and the answer ends where it may end") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  GrammarHarness h(Options());
  for (uint64_t id = 1; id <= 20; ++id) {
    v1::Submit submit = WithGrammar(id, kTwoDigits, 100);
    submit.set_choice_count(2);
    if (id % 3 == 0) submit.set_top_logprobs(1);
    h.Submit(submit);
  }
  h.Submit(MakeSubmit(21, Prompt(5, 1), 4));
  while (h.core->Busy()) h.Step();  // who waits for a grammar is no work, and holds up nobody
  CHECK(h.Of(21).finish == v1::FINISH_REASON_LENGTH);
  CHECK(h.Of(1).tokens.empty());
  CHECK(h.core->sequences() == 40);
  h.CompileAll();
  h.RunAll();
  std::set<std::string> texts;
  for (uint64_t id = 1; id <= 20; ++id) {
    for (int32_t choice = 0; choice < 2; ++choice) {
      CAPTURE(id, choice, h.TextOf(id, choice));
      CHECK(IsTwoDigits(h.TextOf(id, choice)));
      CHECK(h.Of(id, choice).finish == v1::FINISH_REASON_STOP);
      CHECK(h.Of(id, choice).tokens.back() == kStop);
      texts.insert(h.TextOf(id, choice));
    }
  }
  CHECK(texts.size() > 10);  // seeds count
}

TEST_CASE("while its grammar is compiled a submission can be cancelled, whole or a choice") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  GrammarHarness h(Options());
  v1::Submit two = WithGrammar(1, kTwoDigits, 10);
  two.set_choice_count(2);
  h.Submit(two);
  h.Submit(WithGrammar(2, kTwoDigits, 10));
  h.Cancel(1, 0);
  h.Cancel(2);
  CHECK(h.Of(1, 0).finish == v1::FINISH_REASON_CANCELLED);
  CHECK(h.Of(2).finish == v1::FINISH_REASON_CANCELLED);
  CHECK_FALSE(h.core->Busy());  // the other choice goes on waiting
  h.CompileAll();
  h.RunAll();
  CHECK(IsTwoDigits(h.TextOf(1, 1)));
}

TEST_CASE("a grammar that cannot be compiled, or without a compiler, is refused") {
  GrammarHarness h(Options());
  h.Submit(WithGrammar(1, "root ::= (", 10));
  h.core->OnGrammar(h.asked.at(0).first, absl::InvalidArgumentError("no end"), &h.events);
  h.RunEvents();
  CHECK(h.Of(1).error == "no end");
  CHECK(h.Of(1).error_code == static_cast<int>(absl::StatusCode::kInvalidArgument));
  Harness plain(Options());
  plain.Submit(WithGrammar(1, kTwoDigits, 10));
  CHECK(plain.Of(1).error_code == static_cast<int>(absl::StatusCode::kUnimplemented));
  EngineOptions endless = Options();
  endless.eos_token_ids.clear();
  GrammarHarness without(endless);
  without.Submit(WithGrammar(1, kTwoDigits, 10));
  CHECK(without.Of(1).error.find("stop_token_ids") != std::string::npos);
  for (Harness* each : {static_cast<Harness*>(&h), &plain, static_cast<Harness*>(&without)})
    each->RunAll();
}

TEST_CASE("a grammar of too many readings ends its own answer, and no other") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  EngineOptions options = Options();
  options.limits.total_blocks = 200;
  GrammarHarness h(options);
  h.Submit(WithGrammar(1, "root ::= x \"!\"\nx ::= x x x | x x | \"a\" | \"a\" x | x \"a\"", 150));
  h.Submit(WithGrammar(2, "root ::= [a-z]{150}", 150));
  v1::Submit plain = MakeSubmit(3, Prompt(5, 1), 150);
  plain.set_ignore_eos(true);
  h.Submit(plain);
  h.CompileAll();
  h.RunAll();
  CHECK(h.Of(1).error_code == static_cast<int>(absl::StatusCode::kInvalidArgument));
  CHECK(h.Of(1).error.find("can read the same text in too many ways") != std::string::npos);
  CHECK(h.TextOf(1).size() > 5);  // what came before stands
  CHECK(h.TextOf(1).find_first_not_of('a') == std::string::npos);
  CHECK(h.TextOf(2).size() >= 100);
  CHECK(h.Of(2).error.empty());
  CHECK(h.Of(3).tokens.size() == 150);
}

TEST_CASE("a choice of too many readings ends alone") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  EngineOptions options = Options();
  options.limits.total_blocks = 400;
  GrammarHarness h(options);
  v1::Submit submit = WithGrammar(
      1, "root ::= x \"!\" | \"b\"{150}\nx ::= x x x | x x | \"a\" | \"a\" x | x \"a\"", 150);
  constexpr int32_t kChoices = 6;
  submit.set_choice_count(kChoices);
  h.Submit(submit);
  h.CompileAll();
  h.RunAll();
  int alone = 0;
  for (int32_t choice = 0; choice < kChoices; ++choice) {
    const std::string text = h.TextOf(1, choice);
    CAPTURE(choice, text, h.Of(1, choice).error);
    const bool is_broken = text[0] == 'a';
    alone += is_broken ? 1 : 0;
    CHECK((h.Of(1, choice).error_code == static_cast<int>(absl::StatusCode::kInvalidArgument)) ==
          is_broken);
    if (!is_broken) CHECK(text == std::string(150, 'b'));
  }
  CHECK(alone > 0);
  CHECK(alone < kChoices);
}

TEST_CASE("an answer goes on from where an earlier attempt of it stopped") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const std::string list =
      "root ::= \"[\" item (\",\" item){4} \"]\"\nitem ::= [a-z]{2} | [0-9]{3}";
  GrammarHarness whole(Options());
  whole.Submit(WithGrammar(1, list, 60));
  whole.CompileAll();
  whole.RunAll();
  const std::vector<int32_t> tokens = whole.Of(1).tokens;
  REQUIRE(tokens.size() > 8);
  REQUIRE(whole.Of(1).finish == v1::FINISH_REASON_STOP);
  for (size_t kept = 1; kept + 1 < tokens.size(); ++kept) {
    CAPTURE(kept);
    GrammarHarness rest(Options());
    v1::Submit submit = WithGrammar(1, list, 60);
    submit.mutable_output_token_ids()->Add(tokens.begin(), tokens.begin() + kept);
    rest.Submit(submit);
    rest.CompileAll();
    rest.RunAll();
    CHECK(rest.Of(1).tokens == std::vector<int32_t>(tokens.begin() + kept, tokens.end()));
  }
  GrammarHarness other(Options());
  v1::Submit submit = WithGrammar(1, list, 60);
  submit.add_output_token_ids(3);
  other.Submit(submit);
  other.CompileAll();
  other.RunAll();
  CHECK(other.Of(1).error.find("where the grammar has none") != std::string::npos);
}

TEST_CASE("preempted answers come out as those that were not") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const std::string list =
      "root ::= \"[\" item (\",\" item){9} \"]\"\nitem ::= [a-z]{2} | [0-9]{3}";
  const auto run = [&](int64_t blocks) {
    EngineOptions options = Options();
    options.limits.total_blocks = blocks;
    options.limits.max_sequences = 6;
    auto h = std::make_unique<GrammarHarness>(options);
    h->Submit(MakeSubmit(100, Prompt(3, 100), 1));  // a short answer: others are expected to be so
    h->RunAll();
    for (uint64_t id = 1; id <= 6; ++id) h->Submit(WithGrammar(id, list, 80));
    h->CompileAll();
    h->RunAll();
    return h;
  };
  const auto roomy = run(200), tight = run(18);
  CHECK(roomy->core->load().preemptions() == 0);
  CHECK(tight->core->load().preemptions() > 0);
  for (uint64_t id = 1; id <= 6; ++id) {
    CHECK(roomy->Of(id).finish == v1::FINISH_REASON_STOP);
    CHECK(tight->Of(id).tokens == roomy->Of(id).tokens);
  }
}

TEST_CASE("the grammar wins where bans would leave nothing, and over ignore_eos") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  GrammarHarness h(Options());
  v1::Submit min_tokens = WithGrammar(1, kTwoDigits, 20);
  min_tokens.set_min_tokens(10);
  v1::Submit endless = WithGrammar(2, kTwoDigits, 20);
  endless.set_ignore_eos(true);
  v1::Submit outside = WithGrammar(3, "root ::= [a-c]+", 20);
  outside.add_allowed_token_ids(30);
  v1::Submit some = WithGrammar(4, "root ::= [a-c]{5}", 20);
  for (const int32_t id : {1, 36}) some.add_bad_words()->add_ids(id);  // b, ab
  v1::Submit own_stop = WithGrammar(5, "root ::= [a-c]+", 50);
  own_stop.add_stop_token_ids(2);  // c: an end, and no letter any more
  v1::Submit impossible = WithGrammar(6, "root ::= \"!\"", 20);
  for (const v1::Submit& submit : {min_tokens, endless, outside, some, own_stop, impossible})
    h.Submit(submit);
  h.CompileAll();
  h.RunAll();
  CHECK(IsTwoDigits(h.TextOf(1)));
  CHECK(IsTwoDigits(h.TextOf(2)));
  CHECK(h.Of(2).finish == v1::FINISH_REASON_STOP);
  CHECK(h.TextOf(3).find_first_not_of("abc") == std::string::npos);
  CHECK(h.TextOf(4).size() == 5);
  CHECK(h.TextOf(4).find_first_not_of("ac") == std::string::npos);
  const std::vector<int32_t>& stopped = h.Of(5).tokens;
  CHECK(std::count(stopped.begin(), stopped.end() - 1, 2) == 0);
  CHECK(h.Of(6).error.find("no token is left to pick") != std::string::npos);
}

}  // namespace
}  // namespace tessera::worker
