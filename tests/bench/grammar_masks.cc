// What grammars of schemas cost: a compile, and the mask of each token of a random answer.
//
//   grammar_masks [VOCABULARY]     152,000 by default
//
// The vocabulary is made here: all bytes, what JSON often has, and words of letters as long as a
// tokenizer's. Masks are timed cold, each state for the first time, and warm.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "coordinator/grammar/answer_grammar.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAnswers = 20;
constexpr int kMaxTokens = 400;

const std::pair<const char*, const char*> kSchemas[] = {
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

double Microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
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

void Walk(const TokenGrammar& grammar, int32_t size, uint64_t seed, std::vector<double>* times) {
  const auto matcher = grammar.NewMatcher(std::vector<int32_t>{256});
  std::vector<int32_t> mask((size + 31) / 32), allowed;
  std::mt19937_64 random(seed);
  for (int i = 0; i < kMaxTokens; ++i) {
    const auto began = Clock::now();
    matcher->FillMask(mask);
    times->push_back(Microseconds(Clock::now() - began));
    allowed.clear();
    for (int32_t id = 0; id < size; ++id) {
      if ((mask[id / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
    }
    if (allowed.empty()) return;
    const int32_t id = allowed[random() % allowed.size()];
    if (!matcher->Accept(id) || id == 256) return;
  }
}

int Run(int32_t size) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (!HasTokenGrammars()) {
    std::printf("no xgrammar: deploy/install_xgrammar\n");
    return 1;
  }
  auto began = Clock::now();
  const auto vocabulary = TokenVocabulary::Create(Vocabulary(size), size);
  std::printf("vocabulary of %d: prepared in %.0f ms\n", size,
              Microseconds(Clock::now() - began) / 1e3);
  for (const auto& [name, schema] : kSchemas) {
    const auto answer = coordinator::AnswerGrammar::OfSchema(nlohmann::ordered_json::parse(schema),
                                                             coordinator::SchemaMode::kStrict);
    began = Clock::now();
    const auto grammar = TokenGrammar::Compile(*vocabulary, answer->Text());
    std::printf("%s: compiled in %.1f ms, %.1f MB\n", name,
                Microseconds(Clock::now() - began) / 1e3,
                static_cast<double>((*grammar)->size_bytes()) / 1e6);
    std::vector<double> cold, warm;
    for (int i = 0; i < kAnswers; ++i) Walk(**grammar, size, i, &cold);
    for (int i = 0; i < kAnswers; ++i) Walk(**grammar, size, i, &warm);
    Print("cold", std::move(cold));
    Print("warm", std::move(warm));
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  return tessera::bench::Run(argc > 1 ? std::atoi(argv[1]) : 152'000);
}
