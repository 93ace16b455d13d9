// Asks a grammar which texts it has, as a model of some hundred tokens would write them: every
// byte, and some texts of several.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "third_party/xgrammar/token_grammar.h"

namespace tessera::tests {

class GrammarProbe {
 public:
  static constexpr int32_t kStop = 256;

  // Errors are the compile's. `more`: words of the model that random texts often have.
  static absl::StatusOr<GrammarProbe> Create(const std::string& grammar,
                                             const std::vector<std::string>& more = {}) {
    auto probes = CreateAll({grammar}, more);
    if (!probes.ok()) return probes.status();
    return std::move(probes->front());
  }

  // The same of several, compiled one after the other for one vocabulary.
  static absl::StatusOr<std::vector<GrammarProbe>> CreateAll(
      const std::vector<std::string>& grammars, const std::vector<std::string>& more) {
    std::vector<std::string> words = Words();
    for (const std::string& word : more) words.insert(words.end(), 40, word);
    const auto vocabulary = TokenVocabulary::Create(words, static_cast<int64_t>(words.size()));
    if (!vocabulary.ok()) return vocabulary.status();
    std::vector<GrammarProbe> probes;
    for (const std::string& grammar : grammars) {
      auto compiled = TokenGrammar::Compile(*vocabulary, grammar);
      if (!compiled.ok()) return compiled.status();
      probes.push_back(GrammarProbe(*std::move(compiled), words));
    }
    return probes;
  }

  bool Accepts(std::string_view text) const {
    const auto matcher = grammar_->NewMatcher(std::vector<int32_t>{kStop});
    for (const char c : text) {
      if (!matcher->Accept(static_cast<unsigned char>(c))) return false;
    }
    return matcher->Accept(kStop);
  }

  // What a model of random weights writes; nothing where it has not come to an end after
  // `max_tokens`. "?" where no token may follow.
  std::optional<std::string> RandomText(uint64_t seed, int max_tokens) const {
    const auto matcher = grammar_->NewMatcher(std::vector<int32_t>{kStop});
    std::mt19937_64 random(seed);
    std::vector<int32_t> mask((words_.size() + 31) / 32);
    std::string text;
    for (int i = 0; i < max_tokens; ++i) {
      matcher->FillMask(mask);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < std::ssize(words_); ++id) {
        if ((mask[id / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
      }
      if (allowed.empty()) return "?";
      // Models want to end.
      const bool ends = (mask[kStop / 32] >> (kStop % 32) & 1) != 0 && random() % 4 != 0;
      const int32_t id = ends ? kStop : allowed[random() % allowed.size()];
      if (!matcher->Accept(id)) return "?";
      if (id == kStop) return text;
      text += words_[id];
    }
    return std::nullopt;
  }

  // Along a random text that ends late: how many tokens may follow although a mask bans them, or
  // may not although it has them. Those of more than `longest` bytes may be banned.
  int WrongBits(uint64_t seed, int max_tokens, size_t longest) const {
    const auto matcher = grammar_->NewMatcher(std::vector<int32_t>{kStop});
    std::mt19937_64 random(seed);
    std::vector<int32_t> mask((words_.size() + 31) / 32);
    int wrong = 0;
    for (int i = 0; i < max_tokens; ++i) {
      matcher->FillMask(mask);
      std::vector<int32_t> allowed, within;
      for (int32_t id = 0; id < std::ssize(words_); ++id) {
        const bool has = (mask[id / 32] >> (id % 32) & 1) != 0;
        if (has) allowed.push_back(id);
        if (id == kStop) continue;
        const bool follows = matcher->CountNext(std::span(&id, 1)) == 1;
        wrong += has != follows && (has || words_[id].size() <= longest);
        if (has && words_[id].find('"') == std::string::npos) within.push_back(id);
      }
      const std::vector<int32_t>& choice = within.empty() ? allowed : within;
      if (choice.empty() || !matcher->Accept(choice[random() % choice.size()])) break;
    }
    return wrong;
  }

 private:
  GrammarProbe(std::shared_ptr<const TokenGrammar> grammar, std::vector<std::string> words)
      : grammar_(std::move(grammar)), words_(std::move(words)) {}

  static const std::vector<std::string>& Words() {
    static const auto& words = *new std::vector<std::string>([] {
      std::vector<std::string> all;
      for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
      all.emplace_back("");
      for (const char* word :
           {"{\"",  "\": ",  "\", \"", "\"}",  "\"",   "}",  "]",   "[]",   "{}",  ", ",
            "\\\"", "\\u00", "\\n",    "true", "null", "12", "0.5", "-",    "e",   " ",
            "\n  ", "é",     "日本",   "\"\"", "},{",  "a",  "ab",  "name", "://", "@"}) {
        for (int copies = 0; copies < 6; ++copies) all.emplace_back(word);
      }
      return all;
    }());
    return words;
  }

  std::shared_ptr<const TokenGrammar> grammar_;
  std::vector<std::string> words_;
};

}  // namespace tessera::tests
