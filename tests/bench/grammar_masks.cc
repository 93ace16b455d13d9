// What grammars of schemas cost: a compile, and the mask of each token of a random answer.
//
//   grammar_masks [VOCABULARY [FILE]]     152,000 by default
//
// FILE: lines of JSON {"class": NAME, "schema": SCHEMA}, which are measured instead of the five
// below; `schemas DIR COUNT --list` writes such lines. Those that are refused, by keyword or
// because their compile takes longer than a worker waits, are counted.
//
// The vocabulary is made here: all bytes, what JSON often has, and words of letters as long as a
// tokenizer's. Or VOCABULARY is a file of a published one: lines of a token in base64 and its rank,
// of which the first 256 are bytes. Masks are timed cold, each state for the first time, and warm.
//
// Compiles and masks are timed by what they take of a core.
//
// Then those of steps of 16 answers, with all of the schemas, against a step's other time. That is
// taken as what a model of 1.1 billion bfloat16 weights costs at least here: reading them once.
// Exit code 1 where masks add more than 5 % to half of the steps, or 20 % to more than 1 % of them.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "coordinator/grammar/answer_grammar.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/bench/read_sum.h"
#include "third_party/linux/cpu_share.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAnswers = 20;
constexpr int kMaxTokens = 400;
constexpr int32_t kStop = 256;
constexpr int kBatch = 16, kSteps = 2000;
constexpr double kWeightBytes = 2.2e9;
constexpr double kWorkerWaitsSeconds = 3;  // worker/engine/grammar_compiler.h
constexpr double kBarP50 = 0.05, kBarP99 = 0.20;

struct Case {
  std::string name, schema;
};

const Case kSchemas[] = {
    {"flat object",
     R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},
         "email":{"type":"string","format":"email"},"active":{"type":"boolean"}},
         "required":["name","age","email","active"],"additionalProperties":false})"},
    {"list of objects",
     R"({"type":"array","minItems":3,"maxItems":20,"items":{"type":"object","properties":{
         "kind":{"enum":["alpha","beta","gamma"]},"score":{"type":"number","minimum":0,"maximum":1},
         "note":{"type":"string","maxLength":80}},"required":["kind","score","note"]}})"},
    {"any object", R"({"type":"object"})"},
    {"bounded text", R"({"type":"string","minLength":50,"maxLength":2000})"},
    {"pattern", R"({"type":"string","pattern":"^([A-Z][a-z]{2,12} ){3,8}[0-9]{4}$"})"},
};

std::vector<std::string> Vocabulary(size_t size) {
  std::vector<std::string> words;
  for (int byte = 0; byte < 256; ++byte) words.emplace_back(1, static_cast<char>(byte));
  words.emplace_back("");  // ends an answer
  for (const char* word :
       {"{\"", "\":", "\",\"", "\", \"", "\"}", "\": \"", "}]", "],", "\n  ", "[{\"", " \"", " {",
        " [", "true", "false", "null", "\\n", "\\\"", "\\u"}) {
    words.emplace_back(word);
  }
  for (int n = 0; n < 1000; ++n) words.push_back(std::to_string(n));
  std::mt19937_64 random(7);
  while (words.size() < size) {
    std::string word = random() % 2 == 0 ? " " : "";
    const size_t letters = 2 + random() % 9;
    for (size_t i = 0; i < letters; ++i) {
      const char first = random() % 12 == 0 && i == 0 ? 'A' : 'a';
      word.push_back(static_cast<char>(first + random() % 26));
    }
    words.push_back(std::move(word));
  }
  return words;
}

std::vector<std::string> ReadVocabulary(const std::string& path) {
  std::vector<std::string> words;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::string word;
    if (!absl::Base64Unescape(line.substr(0, line.find(' ')), &word)) std::exit(2);
    if (words.size() == kStop) words.emplace_back();
    words.push_back(std::move(word));
  }
  return words;
}

double Microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Of this thread: what others compute meanwhile does not count.
double CoreSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Percentile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

void Print(const char* what, std::vector<double> times) {
  double sum = 0;
  for (const double time : times) sum += time;
  std::printf("  %-5s %6zu masks: mean %8.1f us, p50 %8.1f, p99 %8.1f, max %8.1f\n", what,
              times.size(), sum / static_cast<double>(times.size()), Percentile(times, 0.5),
              Percentile(times, 0.99), Percentile(times, 1));
}

// An answer as a model of random weights writes it.
class RandomAnswer {
 public:
  RandomAnswer(const TokenGrammar& grammar, int32_t size, uint64_t seed)
      : matcher_(grammar.NewMatcher(std::vector<int32_t>{kStop})),
        size_(size),
        mask_((size + 31) / 32),
        random_(seed) {}

  static inline int cut_short = 0;  // answers whose next token took too long to find

  // Makes the mask of its next token, and takes one. False: that was its last.
  bool Next(double* mask_microseconds) {
    const double began = CoreSeconds();
    matcher_->FillMask(mask_);
    *mask_microseconds = (CoreSeconds() - began) * 1e6;
    allowed_.clear();
    for (int32_t id = 0; id < size_; ++id) {
      if ((mask_[id / 32] >> (id % 32) & 1) != 0) allowed_.push_back(id);
    }
    cut_short += !matcher_->status().ok();
    if (allowed_.empty() || ++tokens_ == kMaxTokens) return false;
    const int32_t id = allowed_[random_() % allowed_.size()];
    return matcher_->Accept(id) && id != kStop;
  }

 private:
  std::unique_ptr<TokenMatcher> matcher_;
  int32_t size_;
  std::vector<int32_t> mask_, allowed_;
  std::mt19937_64 random_;
  int tokens_ = 0;
};

void Walk(const TokenGrammar& grammar, int32_t size, uint64_t seed, std::vector<double>* times) {
  RandomAnswer answer(grammar, size, seed);
  for (bool more = true; more;) more = answer.Next(&times->emplace_back());
}

double SecondsOfWeights() {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const std::vector<std::byte> memory(kBytes, std::byte{1});
  const auto pool = kernels::ThreadPool::Create({.cores = AffinityCores()}).value();
  double best = 1e9;
  for (int i = 0; i < 5; ++i) best = std::min(best, ReadSeconds(memory.data(), kBytes, *pool));
  return best * kWeightBytes / static_cast<double>(kBytes);
}

// Whether steps of answers with these grammars keep the bars.
bool MeasureSteps(const std::vector<std::shared_ptr<const TokenGrammar>>& grammars, int32_t size) {
  std::vector<RandomAnswer> answers;
  uint64_t seed = 0;
  const auto make = [&] {
    const uint64_t next = seed++;
    return RandomAnswer(*grammars[next % grammars.size()], size, next % kAnswers);
  };
  for (int i = 0; i < kBatch; ++i) answers.push_back(make());
  std::vector<double> steps;
  for (int i = 0; i < kSteps; ++i) {
    steps.push_back(0);
    for (RandomAnswer& answer : answers) {
      double mask = 0;
      if (!answer.Next(&mask)) answer = make();
      steps.back() += mask;
    }
  }
  const double weights = SecondsOfWeights() * 1e6;
  const double p50 = Percentile(steps, 0.5) / weights, p99 = Percentile(steps, 0.99) / weights;
  std::printf(
      "steps of %d answers: masks p50 %.0f us, p99 %.0f us; reading 2.2 GB of weights %.0f us; "
      "masks "
      "add %.2f %% (bar %.0f) and %.2f %% (bar %.0f)\n",
      kBatch, p50 * weights, p99 * weights, weights, p50 * 100, kBarP50 * 100, p99 * 100,
      kBarP99 * 100);
  return p50 <= kBarP50 && p99 <= kBarP99;
}

// Of the lines of a file.
std::vector<Case> ReadCases(const char* path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto read = nlohmann::ordered_json::parse(line);
    cases.push_back({read.at("class").get<std::string>(), read.at("schema").dump()});
  }
  return cases;
}

// What a compile takes of one core, and the masks of some random answers. Null where the schema is
// refused.
std::shared_ptr<const TokenGrammar> MeasureOne(
    const Case& one, const std::shared_ptr<const TokenVocabulary>& vocabulary, int32_t size,
    int answers, std::vector<double>* compiles) {
  const auto answer = coordinator::AnswerGrammar::OfSchema(
      nlohmann::ordered_json::parse(one.schema), coordinator::SchemaMode::kStrict);
  if (!answer.ok()) return nullptr;
  const double began = CoreSeconds();
  const auto grammar = TokenGrammar::Compile(vocabulary, answer->Text());
  const double seconds = CoreSeconds() - began;
  if (!grammar.ok()) return nullptr;
  compiles->push_back(seconds);
  std::printf("%s: compiled in %.1f ms, %.1f MB\n", one.name.c_str(), seconds * 1e3,
              static_cast<double>((*grammar)->size_bytes()) / 1e6);
  if (seconds > kWorkerWaitsSeconds) return nullptr;
  std::vector<double> cold, warm;
  for (int i = 0; i < answers; ++i) Walk(**grammar, size, i, &cold);
  for (int i = 0; i < answers; ++i) Walk(**grammar, size, i, &warm);
  Print("cold", std::move(cold));
  Print("warm", std::move(warm));
  return *grammar;
}

int Run(const std::vector<std::string>& words, const char* file) {
  const auto size = static_cast<int32_t>(words.size());
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (!HasTokenGrammars()) {
    std::printf("no xgrammar: deploy/install_xgrammar\n");
    return 1;
  }
  const auto began = Clock::now();
  const auto vocabulary = TokenVocabulary::Create(words, size);
  std::printf("vocabulary of %d: prepared in %.0f ms\n", size,
              Microseconds(Clock::now() - began) / 1e3);
  const std::vector<Case> cases = file == nullptr
                                      ? std::vector<Case>(std::begin(kSchemas), std::end(kSchemas))
                                      : ReadCases(file);
  std::vector<std::shared_ptr<const TokenGrammar>> grammars;
  std::vector<double> compiles;
  for (const Case& one : cases) {
    auto grammar = MeasureOne(one, *vocabulary, size, file == nullptr ? kAnswers : 2, &compiles);
    if (grammar != nullptr) grammars.push_back(std::move(grammar));
  }
  if (grammars.empty()) return 1;
  const auto soon =
      std::count_if(compiles.begin(), compiles.end(), [](double s) { return s <= 1; });
  std::printf(
      "%zu of %zu schemas compiled, %td within 1 s: p50 %.3f s, p90 %.3f, p99 %.3f, longest %.3f\n",
      grammars.size(), cases.size(), soon, Percentile(compiles, 0.5), Percentile(compiles, 0.9),
      Percentile(compiles, 0.99), Percentile(compiles, 1));
  const bool kept = MeasureSteps(grammars, size);
  std::printf("answers whose next token took too long to find: %d\n", RandomAnswer::cut_short);
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  const std::string asked = argc > 1 ? argv[1] : "152000";
  const bool is_size = asked.find_first_not_of("0123456789") == std::string::npos;
  return tessera::bench::Run(is_size ? tessera::bench::Vocabulary(std::stoul(asked))
                                     : tessera::bench::ReadVocabulary(asked),
                             argc > 2 ? argv[2] : nullptr);
}
