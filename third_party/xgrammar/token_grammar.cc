#include "third_party/xgrammar/token_grammar.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "third_party/spdlog/log.h"

// What xgrammar wants of a program that has a log of its own: it says why it throws, and warns.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int lineno, const std::string& message);
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int, const std::string& message) {
  tessera::Logger("grammar").warn("{}", message);
}

}  // namespace xgrammar

namespace tessera {
namespace {

// The edge: xgrammar throws.
template <typename Call>
auto Guarded(const Call& call) -> absl::StatusOr<decltype(call())> {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the grammar takes more memory than there is");
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

class Vocabulary final : public TokenVocabulary {
 public:
  explicit Vocabulary(xgrammar::TokenizerInfo info) : info_(std::move(info)) {}

  // Alike rules of a grammar are compiled once (by keys that deploy/install_xgrammar mends), those
  // of two grammars are not: a cache for all would keep grammars that failed, without a bound. From
  // the text: of a parsed grammar it would compile what it prints, which loses NUL.
  xgrammar::CompiledGrammar Compile(const std::string& grammar) const {
    xgrammar::GrammarCompiler compiler(info_, /*max_threads=*/1, /*cache_enabled=*/true);
    return compiler.CompileGrammar(grammar);
  }

 private:
  const xgrammar::TokenizerInfo info_;
};

class Matcher final : public TokenMatcher {
 public:
  Matcher(xgrammar::GrammarMatcher matcher, xgrammar::TokenizerInfo info,
          std::span<const int32_t> stop_ids)
      : matcher_(std::move(matcher)),
        info_(std::move(info)),
        stop_ids_(stop_ids.begin(), stop_ids.end()),
        size_(info_.GetVocabSize()) {}

  bool Accept(int32_t id) override {
    if (matcher_.IsTerminated() || IsWordless(id)) return false;
    return Guarded([&] { return matcher_.AcceptToken(id); }).value_or(false);
  }

  void Undo(int32_t ids) override {
    if (ids > 0) matcher_.Rollback(ids);
  }

  void FillMask(std::span<int32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    if (matcher_.IsTerminated()) return;
    int64_t words = static_cast<int64_t>(mask.size());
    DLTensor tensor = {};
    tensor.data = mask.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = &words;
    const auto filled = Guarded([&] { return matcher_.FillNextTokenBitmask(&tensor); });
    if (!filled.ok()) std::fill(mask.begin(), mask.end(), 0);
    // It sets bits behind the last id.
    if (size_ % 32 != 0) mask[size_ / 32] &= static_cast<int32_t>((1u << (size_ % 32)) - 1);
  }

 private:
  // xgrammar refuses such an id as well, and warns each time.
  bool IsWordless(int32_t id) const {
    const std::vector<int32_t>& special = info_.GetSpecialTokenIds();  // sorted
    return std::binary_search(special.begin(), special.end(), id) &&
           std::find(stop_ids_.begin(), stop_ids_.end(), id) == stop_ids_.end();
  }

  xgrammar::GrammarMatcher matcher_;
  const xgrammar::TokenizerInfo info_;
  const std::vector<int32_t> stop_ids_;
  const int64_t size_;  // ids
};

class Grammar final : public TokenGrammar {
 public:
  explicit Grammar(xgrammar::CompiledGrammar compiled) : compiled_(std::move(compiled)) {}

  std::unique_ptr<TokenMatcher> NewMatcher(std::span<const int32_t> stop_ids) const override {
    xgrammar::GrammarMatcher matcher(compiled_, std::vector<int>(stop_ids.begin(), stop_ids.end()));
    return std::make_unique<Matcher>(std::move(matcher), compiled_.GetTokenizerInfo(), stop_ids);
  }
  int64_t size_bytes() const override { return static_cast<int64_t>(compiled_.MemorySizeBytes()); }

 private:
  const xgrammar::CompiledGrammar compiled_;
};

}  // namespace

bool HasTokenGrammars() { return true; }

absl::StatusOr<std::shared_ptr<const TokenVocabulary>> TokenVocabulary::Create(
    const std::vector<std::string>& bytes, int64_t size) {
  absl::StatusOr<xgrammar::TokenizerInfo> info = Guarded([&] {
    // No id ends an answer by itself: each request says which ones do.
    return xgrammar::TokenizerInfo(bytes, xgrammar::VocabType::RAW, static_cast<int>(size),
                                   std::vector<int32_t>());
  });
  if (!info.ok()) return info.status();
  return std::make_shared<const Vocabulary>(*info);
}

absl::StatusOr<std::shared_ptr<const TokenGrammar>> TokenGrammar::Compile(
    std::shared_ptr<const TokenVocabulary> vocabulary, const std::string& grammar) {
  absl::StatusOr<xgrammar::CompiledGrammar> compiled =
      Guarded([&] { return static_cast<const Vocabulary&>(*vocabulary).Compile(grammar); });
  if (!compiled.ok()) return compiled.status();
  return std::make_shared<const Grammar>(*std::move(compiled));
}

}  // namespace tessera
