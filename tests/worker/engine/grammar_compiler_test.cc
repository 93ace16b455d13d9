// Compiles off the caller's thread: what is kept, what is given up, and what an end leaves.
#include "worker/engine/grammar_compiler.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch_skip.h"

namespace tessera::worker {
namespace {

// A grammar of a stated size.
class SizedGrammar final : public TokenGrammar {
 public:
  explicit SizedGrammar(int64_t bytes) : bytes_(bytes) {}
  std::unique_ptr<TokenMatcher> NewMatcher(std::span<const int32_t>) const override {
    return nullptr;
  }
  int64_t size_bytes() const override { return bytes_; }

 private:
  const int64_t bytes_;
};

// What Start was answered, by grammar, waited for.
class Answers {
 public:
  GrammarCompiler::Done For(const std::string& grammar) {
    return [this, grammar](const GrammarCompiler::Compiled& compiled) {
      std::lock_guard lock(mutex_);
      answers_[grammar].push_back(compiled.status());
      changed_.notify_all();
    };
  }
  absl::Status Wait(const std::string& grammar, size_t count = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_[grammar].size() >= count; });
    return answers_[grammar].back();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<absl::Status>> answers_;
};

double CoreSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A compile that waits for its leave.
struct Gate {
  void Open() {
    std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex);
    ++waiting;
    changed.notify_all();
    changed.wait(lock, [this] { return open; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  int waiting = 0;
};

TEST_CASE("a grammar is compiled once while it is kept, and the least used goes first") {
  std::atomic<int> compiles = 0;
  GrammarCompilerOptions options;
  options.max_kept_bytes = 30'000;
  Answers answers;
  GrammarCompiler compiler(
      [&](const std::string& grammar) -> GrammarCompiler::Compiled {
        ++compiles;
        if (grammar == "bad") return absl::InvalidArgumentError("bad");
        return std::make_shared<const SizedGrammar>(grammar == "huge" ? 1'000'000 : 10'000);
      },
      options);
  const auto ask = [&](const std::string& grammar, size_t count) {
    compiler.Start(grammar, answers.For(grammar));
    return answers.Wait(grammar, count);
  };
  CHECK(ask("a", 1).ok());
  CHECK(ask("b", 1).ok());
  CHECK(ask("a", 2).ok());
  CHECK(compiles == 2);
  CHECK(ask("c", 1).ok());  // b goes: a was used since
  CHECK(ask("a", 3).ok());
  CHECK(compiles == 3);
  CHECK(ask("b", 2).ok());
  CHECK(compiles == 4);
  CHECK(ask("huge", 1).ok());
  CHECK(ask("huge", 2).ok());
  CHECK(compiles == 6);
  CHECK(ask("bad", 1).code() == absl::StatusCode::kInvalidArgument);
  CHECK(compiler.kept_bytes() <= options.max_kept_bytes);
}

TEST_CASE("a compile that takes too long is given up, and others go on until too many are") {
  const auto gate = std::make_shared<Gate>();
  GrammarCompilerOptions options;
  options.max_seconds = 0.05;
  options.max_given_up = 1;
  Answers answers;
  GrammarCompiler compiler(
      [gate](const std::string& grammar) -> GrammarCompiler::Compiled {
        if (grammar == "slow") gate->Pass();
        return std::make_shared<const SizedGrammar>(1);
      },
      options);
  compiler.Start("slow", answers.For("slow"));
  const absl::Status slow = answers.Wait("slow");
  CHECK(slow.code() == absl::StatusCode::kResourceExhausted);  // it may be tried again
  CHECK(std::string(slow.message()).find("takes longer than") != std::string::npos);
  compiler.Start("quick", answers.For("quick"));
  CHECK(answers.Wait("quick").code() == absl::StatusCode::kResourceExhausted);
  gate->Open();
  // The thread that was given up ends some time after.
  for (size_t count = 2;; ++count) {
    compiler.Start("quick", answers.For("quick"));
    const absl::Status again = answers.Wait("quick", count);
    if (again.ok()) break;
    REQUIRE(again.code() == absl::StatusCode::kResourceExhausted);
  }
}

TEST_CASE("a grammar that was given up is refused at once while it is still compiled") {
  const auto gate = std::make_shared<Gate>();
  std::atomic<int> compiles = 0;
  GrammarCompilerOptions options;
  options.max_seconds = 0.05;
  options.max_given_up = 2;
  Answers answers;
  GrammarCompiler compiler(
      [&compiles, gate](const std::string& grammar) -> GrammarCompiler::Compiled {
        ++compiles;
        if (grammar == "slow") gate->Pass();
        return std::make_shared<const SizedGrammar>(1);
      },
      options);
  for (size_t count = 1; count <= 3; ++count) {
    compiler.Start("slow", answers.For("slow"));
    CHECK(answers.Wait("slow", count).code() == absl::StatusCode::kResourceExhausted);
  }
  CHECK(compiles == 1);
  compiler.Start("quick", answers.For("quick"));
  CHECK(answers.Wait("quick").ok());
  gate->Open();
  // The compile ends some time after, and is there for whoever asks then.
  for (size_t count = 4;; ++count) {
    compiler.Start("slow", answers.For("slow"));
    if (answers.Wait("slow", count).ok()) break;
  }
  CHECK(compiles == 2);
}

TEST_CASE("a refusal for want of memory is not kept") {
  std::atomic<int> compiles = 0;
  Answers answers;
  GrammarCompiler compiler([&](const std::string&) -> GrammarCompiler::Compiled {
    if (++compiles == 1) return absl::ResourceExhaustedError("no memory");
    return std::make_shared<const SizedGrammar>(1);
  });
  compiler.Start("a", answers.For("a"));
  CHECK(answers.Wait("a").code() == absl::StatusCode::kResourceExhausted);
  compiler.Start("a", answers.For("a"));
  CHECK(answers.Wait("a", 2).ok());
  CHECK(compiles == 2);
}

TEST_CASE("a compile is given up by what it takes of a core, not by how long it waits for one") {
  const auto over = std::make_shared<std::atomic<bool>>(false);
  GrammarCompilerOptions options;
  options.max_core_seconds = 0.05;
  options.max_seconds = 3600;
  Answers answers;
  GrammarCompiler compiler(
      [over](const std::string& grammar) -> GrammarCompiler::Compiled {
        if (grammar == "waits") std::this_thread::sleep_for(std::chrono::milliseconds(200));
        while (grammar == "computes" && !*over) {
        }
        return std::make_shared<const SizedGrammar>(1);
      },
      options);
  compiler.Start("waits", answers.For("waits"));
  CHECK(answers.Wait("waits").ok());
  compiler.Start("computes", answers.For("computes"));
  CHECK(answers.Wait("computes").code() == absl::StatusCode::kResourceExhausted);
  *over = true;
}

TEST_CASE("the end waits for no compile, and whoever waits for one hears nothing") {
  const auto gate = std::make_shared<Gate>();
  std::atomic<int> answers = 0;
  {
    GrammarCompiler compiler([gate](const std::string&) -> GrammarCompiler::Compiled {
      gate->Pass();
      return std::make_shared<const SizedGrammar>(1);
    });
    compiler.Start("a", [&](const GrammarCompiler::Compiled&) { ++answers; });
    compiler.Start("b", [&](const GrammarCompiler::Compiled&) { ++answers; });
    std::unique_lock lock(gate->mutex);
    gate->changed.wait(lock, [&] { return gate->waiting == 1; });
  }
  CHECK(answers == 0);
  gate->Open();
}

TEST_CASE("a vocabulary compiles grammars of its own bytes") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const GrammarCompiler::Compile compile = CompileFor({"a", "b", "ab", "", "c"}, 40);
  const auto grammar = compile("root ::= \"a\" \"b\"");
  REQUIRE(grammar.ok());
  const std::vector<int32_t> stops = {4};
  const auto matcher = (*grammar)->NewMatcher(stops);
  std::vector<int32_t> mask(2);
  matcher->FillMask(mask);
  CHECK(mask == std::vector<int32_t>{1 << 0 | 1 << 2, 0});
  CHECK_FALSE(matcher->Accept(1));
  CHECK_FALSE(matcher->Accept(4));
  CHECK(matcher->Accept(2));
  matcher->FillMask(mask);
  CHECK(mask == std::vector<int32_t>{1 << 4, 0});
  CHECK(matcher->Accept(4));
  CHECK_FALSE(matcher->Accept(4));
  matcher->FillMask(mask);
  CHECK(mask == std::vector<int32_t>{0, 0});
  CHECK(compile("root ::= nothing").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(compile("root ::= (").status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a text of very many readings ends its matcher, which says why") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const GrammarCompiler::Compile compile = CompileFor({"a", "b", "ab", "", "c"}, 40);
  const auto grammar = compile("root ::= x \"c\"\nx ::= x x x | x x | \"a\" | \"a\" x | x \"a\"");
  REQUIRE(grammar.ok());
  const std::vector<int32_t> stops = {3};
  const auto matcher = (*grammar)->NewMatcher(stops);
  std::vector<int32_t> mask(2);
  double longest = 0;
  int accepted = 0;
  while (matcher->status().ok() && accepted < 1000) {
    const double began = CoreSeconds();
    if (matcher->Accept(0)) ++accepted;
    matcher->FillMask(mask);
    longest = std::max(longest, CoreSeconds() - began);
  }
  CHECK(accepted > 5);
  CHECK(accepted < 1000);
  CHECK(longest < 4 * kMaxMatcherSeconds);
  CHECK(matcher->status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(matcher->status().message().find("too many ways") != std::string::npos);
  CHECK(mask == std::vector<int32_t>{0, 0});
  CHECK_FALSE(matcher->Accept(0));
  matcher->FillMask(mask);
  CHECK(mask == std::vector<int32_t>{0, 0});
}

std::vector<int32_t> MaskOf(TokenMatcher* matcher) {
  std::vector<int32_t> mask(2);
  matcher->FillMask(mask);
  return mask;
}

TEST_CASE("drafts are counted and leave their matcher as it was") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const GrammarCompiler::Compile compile = CompileFor({"a", "b", "ab", "", "c"}, 40);
  const auto grammar = compile("root ::= \"a\" \"b\" \"a\" \"c\"");
  REQUIRE(grammar.ok());
  const std::vector<int32_t> stops = {3};
  const auto matcher = (*grammar)->NewMatcher(stops), walked = (*grammar)->NewMatcher(stops);
  const std::vector<int32_t> drafts = {2, 0, 4, 0};
  CHECK(matcher->CountNext(drafts) == 3);
  CHECK(matcher->CountNext(std::vector<int32_t>{3, 2}) == 0);
  CHECK(matcher->CountNext({}) == 0);
  const std::vector<int32_t> before = MaskOf(matcher.get());
  for (size_t behind = 0; behind <= 3; ++behind) {
    CAPTURE(behind);
    std::vector<int32_t> mask(2, -1);
    matcher->FillMaskBehind(std::span(drafts).first(behind), mask);
    CHECK(mask == MaskOf(walked.get()));
    if (behind < 3) REQUIRE(walked->Accept(drafts[behind]));
  }
  CHECK(MaskOf(matcher.get()) == before);
  for (const int32_t id : {0, 1, 0, 4, 3}) CHECK(matcher->Accept(id));
}

// What an undone draft takes of a budget does not come back: then a mask, and the end of the
// answer, would be another one.
TEST_CASE("rules with budgets take no drafts, and keys that are named so do") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const GrammarCompiler::Compile compile = CompileFor({"a", "b", "ab", "", "c"}, 40);
  const std::vector<int32_t> stops = {3}, drafts = {0, 1};
  for (const char* budget : {"max_tokens=3", "max_chars=3", "temperature=0.5, max_chars = 3"}) {
    CAPTURE(budget);
    const auto grammar =
        compile(std::string("root ::= word \"c\"\nword[") + budget + "] ::= [ab]*");
    REQUIRE(grammar.ok());
    const auto matcher = (*grammar)->NewMatcher(stops), plain = (*grammar)->NewMatcher(stops);
    for (const int32_t id : {0, 1}) {
      CHECK(matcher->CountNext(drafts) == 0);
      std::vector<int32_t> mask(2, -1);
      matcher->FillMaskBehind(std::span(drafts).first(1), mask);
      CHECK(mask == std::vector<int32_t>{0, 0});
      CHECK(MaskOf(matcher.get()) == MaskOf(plain.get()));
      for (const auto& each : {matcher.get(), plain.get()}) REQUIRE(each->Accept(id));
    }
  }
  const auto keys = compile("root ::= \"a\" \"b\" | \"\\\"max_tokens\\\":\" \"max_chars\"");
  REQUIRE(keys.ok());
  CHECK((*keys)->NewMatcher(stops)->CountNext(drafts) == 2);
}

TEST_CASE("drafts that take too long are none, and end no answer") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const GrammarCompiler::Compile compile = CompileFor({"a", "b", "ab", "", "c"}, 40);
  const auto grammar = compile(
      "root ::= \"b\" root | x \"c\" | \"c\"\n"
      "x ::= x x x | x x | \"a\" | \"a\" x | x \"a\"");
  REQUIRE(grammar.ok());
  const std::vector<int32_t> stops = {3};
  const auto matcher = (*grammar)->NewMatcher(stops), plain = (*grammar)->NewMatcher(stops);
  for (const auto& each : {matcher.get(), plain.get()}) REQUIRE(each->Accept(1));
  const std::vector<int32_t> drafts(3000, 0);
  const double began = CoreSeconds();
  const size_t count = matcher->CountNext(drafts);
  CHECK(count > 1);
  CHECK(count < drafts.size());
  CHECK(CoreSeconds() - began < kMaxMatcherSeconds);
  CHECK(matcher->status().ok());
  CHECK(matcher->CountNext(drafts) == 0);  // it is not tried again
  std::vector<int32_t> mask(2, -1);
  matcher->FillMaskBehind(std::span(drafts).first(1), mask);
  CHECK(mask == std::vector<int32_t>{0, 0});
  CHECK(MaskOf(matcher.get()) == MaskOf(plain.get()));
  for (const int32_t id : {1, 1, 0, 0}) {
    CHECK(matcher->Accept(id));
    CHECK(plain->Accept(id));
    CHECK(MaskOf(matcher.get()) == MaskOf(plain.get()));
  }
  for (const int32_t id : {4, 3}) CHECK(matcher->Accept(id));
}

TEST_CASE("drafts do not count against an answer") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  const GrammarCompiler::Compile compile = CompileFor({std::string(200, 'a'), ""}, 2);
  const auto grammar = compile("root ::= [a-z]*");
  REQUIRE(grammar.ok());
  const std::vector<int32_t> stops = {1};
  const auto matcher = (*grammar)->NewMatcher(stops);
  // At least one state for each character: together more than a matcher keeps.
  for (int64_t i = 0; i < kMaxMatcherStates / 200 + 1; ++i)
    REQUIRE(matcher->CountNext(std::vector<int32_t>{0}) == 1);
  CHECK(matcher->status().ok());
}

}  // namespace
}  // namespace tessera::worker
