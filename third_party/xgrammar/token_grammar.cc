#include "third_party/xgrammar/token_grammar.h"

#include <dlpack/dlpack.h>
#include <time.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <new>
#include <stdexcept>
#include <string_view>
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

constexpr int32_t kStatesPerLook = 1024;  // at the clock
// A call that looks at fewer is in time, however slow the core.
constexpr int64_t kFreeStates = 1 << 18;

struct TookTooLong final : std::exception {};

struct Effort {
  double core_seconds = std::numeric_limits<double>::infinity();
  int64_t states = std::numeric_limits<int64_t>::max();  // that parsers look at
};

double CoreSecondsOfThread() {
  timespec time = {};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// What parsers of one thread take of it, behind the first kStatesPerLook states, and may take.
class Meter {
 public:
  void Begin(const Effort& most) {
    most_ = most;
    looks_ = 0;
    xgrammar::states_left = kStatesPerLook;
  }

  // Throws where it is more.
  void Look() {
    const double now = CoreSecondsOfThread();
    if (looks_++ == 0) first_look_seconds_ = now;
    xgrammar::states_left = kStatesPerLook;
    const bool late = States() > kFreeStates && now - first_look_seconds_ > most_.core_seconds;
    if (late || States() > most_.states) throw TookTooLong();
  }

  Effort End() {
    const Effort taken = {looks_ == 0 ? 0 : CoreSecondsOfThread() - first_look_seconds_, States()};
    Begin({});
    return taken;
  }

 private:
  int64_t States() const { return (looks_ + 1) * kStatesPerLook - xgrammar::states_left; }

  Effort most_;
  int64_t looks_ = 0;
  double first_look_seconds_ = 0;
};

thread_local Meter meter;

// The edge: xgrammar throws. `taken`: what it took, ended early or not.
template <typename Call>
auto Guarded(const Call& call, const Effort& most = {}, Effort* taken = nullptr)
    -> absl::StatusOr<decltype(call())> {
  struct Metered {
    ~Metered() {
      const Effort effort = meter.End();
      if (taken != nullptr) *taken = effort;
    }
    Effort* taken;
  };
  meter.Begin(most);
  const Metered metered = {taken};
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the grammar takes more memory than there is");
  } catch (const TookTooLong&) {
    return absl::InvalidArgumentError(
        "the schema or grammar can read the same text in too many ways, so that what may follow in "
        "it takes too long to find: make alternatives fewer, or let them begin differently");
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

}  // namespace
}  // namespace tessera

namespace xgrammar {

void StatesSpent() { tessera::meter.Look(); }

}  // namespace xgrammar

namespace tessera {
namespace {

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
  Matcher(absl::StatusOr<xgrammar::GrammarMatcher> matcher, xgrammar::TokenizerInfo info,
          std::span<const int32_t> stop_ids, bool has_budgets)
      : matcher_(std::move(matcher)),
        info_(std::move(info)),
        stop_ids_(stop_ids.begin(), stop_ids.end()),
        size_(info_.GetVocabSize()),
        refuses_drafts_(has_budgets) {}

  bool Accept(int32_t id) override {
    if (!MayGoOn() || IsWordless(id)) return false;
    Effort taken;
    const absl::StatusOr<bool> accepted =
        Guarded([&] { return matcher_->AcceptToken(id); },
                {kMaxMatcherSeconds, kMaxMatcherStates - states_}, &taken);
    if (!accepted.ok()) matcher_ = accepted.status();
    if (accepted.value_or(false)) states_ += taken.states;
    return accepted.value_or(false);
  }

  size_t CountNext(std::span<const int32_t> drafts) override {
    const int32_t count = AcceptDrafts(drafts);
    Undo(count);
    return static_cast<size_t>(count);
  }

  void FillMask(std::span<int32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    if (!MayGoOn()) return;
    Effort taken;
    const absl::Status filled = Fill(mask, mask_seconds_, &taken);
    mask_seconds_ = std::clamp(mask_seconds_ + kMeanMaskSeconds - taken.core_seconds,
                               kMeanMaskSeconds, kMaxMatcherSeconds);
    if (!filled.ok()) matcher_ = filled;
  }

  void FillMaskBehind(std::span<const int32_t> drafts, std::span<int32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    const int32_t count = AcceptDrafts(drafts);
    if (count == static_cast<int32_t>(drafts.size()) && MayGoOn()) {
      Effort taken;
      NoteDrafts(Fill(mask, kMeanMaskSeconds, &taken));
    }
    Undo(count);
  }

  absl::Status status() const override { return matcher_.status(); }

 private:
  bool MayGoOn() const { return matcher_.ok() && !matcher_->IsTerminated(); }

  // Accepts them up to the first that may not be next; returns how many that are.
  int32_t AcceptDrafts(std::span<const int32_t> drafts) {
    int32_t count = 0;
    if (refuses_drafts_ || !MayGoOn()) return count;
    const auto accept = [&] {
      for (const int32_t id : drafts) {
        if (!MayGoOn() || IsWordless(id) || !matcher_->AcceptToken(id)) break;
        ++count;
      }
      return count;
    };
    NoteDrafts(Guarded(accept, {kMeanMaskSeconds, kMaxMatcherStates - states_}).status());
    return count;
  }

  void Undo(int32_t count) {
    if (matcher_.ok() && count > 0) matcher_->Rollback(count);
  }

  // What ended early left the matcher as it was, or terminated (deploy/install_xgrammar).
  void NoteDrafts(const absl::Status& outcome) {
    if (outcome.ok()) return;
    refuses_drafts_ = true;
    if (matcher_->IsTerminated()) matcher_ = outcome;
  }

  // All of `mask`; where it fails, nothing.
  absl::Status Fill(std::span<int32_t> mask, double most_seconds, Effort* taken) {
    int64_t words = static_cast<int64_t>(mask.size());
    DLTensor tensor = {};
    tensor.data = mask.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = &words;
    const auto filled = Guarded([&] { return matcher_->FillNextTokenBitmask(&tensor); },
                                {.core_seconds = most_seconds}, taken);
    if (!filled.ok()) {
      std::fill(mask.begin(), mask.end(), 0);
    } else if (size_ % 32 != 0) {
      // It sets bits behind the last id.
      mask[size_ / 32] &= static_cast<int32_t>((1u << (size_ % 32)) - 1);
    }
    return filled.status();
  }

  // xgrammar refuses such an id as well, and warns each time.
  bool IsWordless(int32_t id) const {
    const std::vector<int32_t>& special = info_.GetSpecialTokenIds();  // sorted
    return std::binary_search(special.begin(), special.end(), id) &&
           std::find(stop_ids_.begin(), stop_ids_.end(), id) == stop_ids_.end();
  }

  absl::StatusOr<xgrammar::GrammarMatcher> matcher_;
  const xgrammar::TokenizerInfo info_;
  const std::vector<int32_t> stop_ids_;
  const int64_t size_;                        // ids
  double mask_seconds_ = kMaxMatcherSeconds;  // that the next mask may take
  int64_t states_ = 0;                        // looked at, of what was accepted
  bool refuses_drafts_;  // they are slow, or what they took of a budget would not come back
};

class Grammar final : public TokenGrammar {
 public:
  Grammar(xgrammar::CompiledGrammar compiled, bool has_budgets)
      : compiled_(std::move(compiled)), has_budgets_(has_budgets) {}

  std::unique_ptr<TokenMatcher> NewMatcher(std::span<const int32_t> stop_ids) const override {
    const std::vector<int> stops(stop_ids.begin(), stop_ids.end());
    auto matcher = Guarded([&] { return xgrammar::GrammarMatcher(compiled_, stops); },
                           {kMaxMatcherSeconds, kMaxMatcherStates});
    return std::make_unique<Matcher>(std::move(matcher), compiled_.GetTokenizerInfo(), stop_ids,
                                     has_budgets_);
  }
  int64_t size_bytes() const override { return static_cast<int64_t>(compiled_.MemorySizeBytes()); }

 private:
  const xgrammar::CompiledGrammar compiled_;
  const bool has_budgets_;
};

// Whether a rule may be of so many tokens or characters at most: name[max_tokens = 8] ::= ... A key
// of a schema that has such a name does not count.
bool HasBudgets(const std::string& grammar) {
  for (const std::string_view budget : {"max_tokens", "max_chars"}) {
    for (size_t at = 0; (at = grammar.find(budget, at)) != std::string::npos;) {
      at = grammar.find_first_not_of(" \t", at + budget.size());
      if (at != std::string::npos && grammar[at] == '=') return true;
    }
  }
  return false;
}

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
      Guarded([&] { return static_cast<const Vocabulary&>(*vocabulary).Compile(grammar); },
              {.core_seconds = kMaxCompileSeconds});
  if (!compiled.ok()) return compiled.status();
  return std::make_shared<const Grammar>(*std::move(compiled), HasBudgets(grammar));
}

}  // namespace tessera
