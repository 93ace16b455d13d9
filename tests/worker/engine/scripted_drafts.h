// Drafts as a test wants them: right, wrong, or anything else, against streams that it knows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/drafts/draft_source.h"

namespace tessera::worker {

enum class DraftScript {
  kRight,    // what follows in the first stream that begins so
  kWrong,    // never that
  kHalf,     // right, then wrong
  kSome,     // by the length of the sequence: none, some right ones, then wrong ones
  kEmpty,    // none
  kPastEnd,  // right, and more than are asked for
  kForeign,  // ids that there are none of, behind a right one
};

inline constexpr DraftScript kDraftScripts[] = {
    DraftScript::kRight, DraftScript::kWrong,   DraftScript::kHalf,   DraftScript::kSome,
    DraftScript::kEmpty, DraftScript::kPastEnd, DraftScript::kForeign};

// Prompts with their answers.
using KnownStreams = std::vector<std::vector<int32_t>>;

class ScriptedDrafts final : public DraftSource {
 public:
  ScriptedDrafts(std::shared_ptr<const KnownStreams> streams, DraftScript script,
                 int64_t vocabulary)
      : streams_(std::move(streams)), script_(script), vocabulary_(vocabulary) {}

  void Propose(std::span<const int32_t> tokens, int64_t most,
               std::vector<int32_t>* drafts) override {
    drafts->clear();
    const int64_t count = script_ == DraftScript::kPastEnd ? 40 : most;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t right = Right(tokens, i);
      const int32_t wrong = static_cast<int32_t>((right + 1) % vocabulary_);
      const auto length = std::ssize(tokens);
      switch (script_) {
        case DraftScript::kRight:
        case DraftScript::kPastEnd: drafts->push_back(right); break;
        case DraftScript::kWrong: drafts->push_back(wrong); break;
        case DraftScript::kHalf: drafts->push_back(i < most / 2 ? right : wrong); break;
        case DraftScript::kSome:
          if (i < length % 5) drafts->push_back(i < length % 3 ? right : wrong);
          break;
        case DraftScript::kEmpty: break;
        case DraftScript::kForeign:
          drafts->push_back(i == 0 ? right : i % 2 == 0 ? -1 : static_cast<int32_t>(vocabulary_));
          break;
      }
    }
  }
  bool MayProposeNext(std::span<const int32_t>) override { return script_ != DraftScript::kEmpty; }

 private:
  int32_t Right(std::span<const int32_t> tokens, int64_t behind) const {
    for (const std::vector<int32_t>& stream : *streams_) {
      if (stream.size() <= tokens.size() + behind) continue;
      if (std::equal(tokens.begin(), tokens.end(), stream.begin())) {
        return stream[tokens.size() + behind];
      }
    }
    return static_cast<int32_t>((tokens.size() + behind) % vocabulary_);
  }

  const std::shared_ptr<const KnownStreams> streams_;
  const DraftScript script_;
  const int64_t vocabulary_;
};

inline DraftSourceFactory ScriptedDraftsOf(KnownStreams streams, DraftScript script,
                                           int64_t vocabulary) {
  auto shared = std::make_shared<const KnownStreams>(std::move(streams));
  return [shared, script, vocabulary] {
    return std::make_unique<ScriptedDrafts>(shared, script, vocabulary);
  };
}

}  // namespace tessera::worker
