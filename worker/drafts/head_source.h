// Drafts from the model's own head for further tokens (v1::DraftHead), which come back with each
// step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/drafts/draft_source.h"

namespace tessera::worker {

class HeadSource final : public DraftSource {
 public:
  void Propose(std::span<const int32_t> tokens, int64_t most,
               std::vector<int32_t>* drafts) override {
    drafts->clear();
    if (std::ssize(tokens) != behind_) return;
    const auto count = std::min<size_t>(given_.size(), static_cast<size_t>(most));
    drafts->assign(given_.begin(), given_.begin() + static_cast<int64_t>(count));
  }
  bool MayProposeNext(std::span<const int32_t>) override { return true; }
  void Take(int64_t behind, std::vector<int32_t> drafts) override {
    behind_ = behind;
    given_ = std::move(drafts);
  }

 private:
  int64_t behind_ = -1;
  std::vector<int32_t> given_;
};

}  // namespace tessera::worker
