// A replica's workers, played by a test: steps wait until the test lets them run, in the order in
// which they began, and each token is a hash of all tokens before it, read through the KV pool. So
// a block that is given away too early, or a step that is built from a wrong one, shows as a wrong
// token.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "worker/engine/kv_mover.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

class ScriptedExecutor final : public StepExecutor {
 public:
  struct Shape {              // of a step
    int64_t single_rows = 0;  // sequences of which it computes one token
    int64_t chunk_rows = 0;   // rows of the others
    int64_t draws = 0;

    bool operator==(const Shape&) const = default;
  };

  // `ahead`: with one lane, steps run ahead, but for those with scores.
  ScriptedExecutor(int lanes, int64_t blocks, int64_t block_tokens, int64_t vocabulary,
                   bool ahead = false)
      : lanes_(lanes),
        ahead_(ahead),
        block_tokens_(block_tokens),
        vocabulary_(vocabulary),
        pool_(static_cast<size_t>(blocks * block_tokens)) {}

  int lanes() const override { return lanes_; }
  bool runs_ahead() const override { return ahead_; }
  bool MayRunAhead() const override {
    return ahead_ && feeds_ && waiting_.size() + done_.size() == 1;
  }
  absl::Status Begin(const StepWork& work) override {
    const size_t in_flight = waiting_.size() + done_.size();
    REQUIRE((in_flight < static_cast<size_t>(lanes_) || MayRunAhead()));
    if (work.arrays->fed_rows() > 0) REQUIRE(in_flight == 1);
    for (size_t i = 0; i < work.samples.size(); ++i) {  // a fed token is in no history
      if (work.samples[i].history_ids.empty()) continue;
      REQUIRE(work.arrays->token_ids()[work.arrays->logit_rows()[i]] >= 0);
    }
    if (!begin_failure.ok()) return std::exchange(begin_failure, absl::OkStatus());
    begun_ahead += in_flight > 0 && lanes_ == 1 ? 1 : 0;
    feeds_ = work.scores.empty();
    waiting_.push_back(work);
    shapes.push_back(ShapeOf(work));
    draft_tokens.push_back(work.draft_tokens);
    return absl::OkStatus();
  }
  bool Ready() override { return !done_.empty() || !broken.ok(); }
  absl::Status Take(StepOutcome* outcome) override {
    if (done_.empty()) {
      waiting_.clear();
      return broken;
    }
    *outcome = std::move(done_.front().outcome);
    absl::Status status = done_.front().status;
    done_.pop_front();
    return status;
  }
  absl::Status Broken() override { return broken; }
  int64_t device_bytes() const override { return 0; }

  bool waits() const { return !waiting_.empty(); }
  // Runs the oldest step that has not run. Not OK: it gives nothing, though it wrote the KV.
  void RunOldest(const absl::Status& status = absl::OkStatus()) {
    const StepWork work = waiting_.front();
    waiting_.pop_front();
    Done& done = done_.emplace_back();
    done.status = status;
    WriteKv(*work.arrays);
    const StepArrays& arrays = *work.arrays;
    for (const KvPush& push : work.pushes) CopyPush(push, arrays);
    for (size_t i = 0; i < work.samples.size(); ++i) {
      const int32_t slot = arrays.slots()[arrays.logit_rows()[i]];
      done.outcome.samples.push_back({Draw(pool_[slot], work.samples[i].choice), {}});
    }
    for (const ScoreRequest& score : work.scores) {
      done.outcome.scores.emplace_back().mutable_chosen()->set_token_id(score.token_id);
    }
    if (!status.ok()) done.outcome = {};
    drawn_.clear();
    for (const SampleResult& sample : done.outcome.samples) drawn_.push_back(sample.token_id);
  }
  // The oldest step that ran: its i-th drawn token becomes `token_id`.
  void SpoilDraw(size_t i, int32_t token_id) {
    std::vector<SampleResult>& samples = done_.front().outcome.samples;
    if (i < samples.size()) samples[i].token_id = token_id;
  }

  // What steps that ran have pushed, in order; its KV is read from the pool when it is copied.
  struct Pushed {
    KvKey key;
    int64_t first = 0;
    int64_t end = 0;
    int64_t prompt_tokens = 0;
    std::vector<int32_t> blocks;
  };
  std::vector<Pushed> pushed;

  // Copies what stands for tokens [first, end) of a sequence from another pool.
  void CopyKv(const ScriptedExecutor& from, const std::vector<int32_t>& from_blocks,
              const std::vector<int32_t>& blocks, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; ++t) {
      const auto slot = [&](const ScriptedExecutor& pool, const std::vector<int32_t>& table) {
        return table[t / pool.block_tokens_] * pool.block_tokens_ + t % pool.block_tokens_;
      };
      pool_[slot(*this, blocks)] = from.pool_[slot(from, from_blocks)];
    }
  }

  // The tokens that follow `tokens` in an undisturbed choice.
  std::vector<int32_t> Expected(const std::vector<int32_t>& prompt, int32_t choice,
                                int64_t count) const {
    uint64_t state = kEmpty;
    for (const int32_t token : prompt) state = Next(state, token);
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(Draw(state, choice));
      state = Next(state, tokens.back());
    }
    return tokens;
  }

  std::vector<Shape> shapes;          // of all steps that began
  std::vector<int32_t> draft_tokens;  // as these steps had them
  int64_t begun_ahead = 0;            // of these, behind one in flight
  absl::Status begin_failure;         // of the next Begin
  absl::Status broken;

 private:
  static constexpr uint64_t kEmpty = 0x9e3779b97f4a7c15;

  struct Done {
    absl::Status status;
    StepOutcome outcome;
  };

  static uint64_t Next(uint64_t state, int32_t token) {
    state = (state ^ static_cast<uint64_t>(token + 1)) * 0xbf58476d1ce4e5b9;
    return state ^ (state >> 29);
  }
  int32_t Draw(uint64_t state, int32_t choice) const {
    return static_cast<int32_t>(Next(state, 1000 + choice) % static_cast<uint64_t>(vocabulary_));
  }

  static Shape ShapeOf(const StepWork& work) {
    Shape shape;
    const std::span<const int32_t> starts = work.arrays->query_starts();
    for (int64_t i = 0; i < work.arrays->sequences(); ++i) {
      const int32_t rows = starts[i + 1] - starts[i];
      (rows == 1 ? shape.single_rows : shape.chunk_rows) += rows;
    }
    shape.draws = static_cast<int64_t>(work.samples.size());
    return shape;
  }

  void CopyPush(const KvPush& push, const StepArrays& arrays) {
    REQUIRE(push.sequence < arrays.sequences());
    REQUIRE(push.end <= arrays.context_lengths()[push.sequence]);
    int64_t before = 0;
    for (int32_t i = 0; i < push.sequence; ++i) before += arrays.table_widths()[i];
    const auto blocks = arrays.tables().subspan(
        static_cast<size_t>(before), static_cast<size_t>(arrays.table_widths()[push.sequence]));
    pushed.push_back({{push.submission_id, push.attempt},
                      push.first,
                      push.end,
                      push.prompt_tokens,
                      {blocks.begin(), blocks.end()}});
  }

  // As the device finds it: a step that failed drew nothing.
  int32_t TokenOf(int32_t id) const {
    if (id > kernels::kFedToken) return id;
    if (drawn_.empty()) return -1;
    return drawn_.at(kernels::kFedToken - id);
  }

  void WriteKv(const StepArrays& arrays) {
    const int32_t* table = arrays.tables().data();
    for (int64_t i = 0; i < arrays.sequences(); ++i) {
      for (int32_t row = arrays.query_starts()[i]; row < arrays.query_starts()[i + 1]; ++row) {
        const int64_t position = arrays.positions()[row];
        const auto slot = [&](int64_t p) {
          return table[p / block_tokens_] * block_tokens_ + p % block_tokens_;
        };
        REQUIRE(arrays.slots()[row] == slot(position));
        const uint64_t before = position == 0 ? kEmpty : pool_[slot(position - 1)];
        pool_[slot(position)] = Next(before, TokenOf(arrays.token_ids()[row]));
      }
      table += arrays.table_widths()[i];
    }
  }

  const int lanes_;
  const bool ahead_;
  const int64_t block_tokens_;
  const int64_t vocabulary_;
  std::vector<uint64_t> pool_;  // by slot: the hash of all tokens up to that one
  bool feeds_ = false;          // the step that began last
  std::vector<int32_t> drawn_;  // by the step that ran last
  std::deque<StepWork> waiting_;
  std::deque<Done> done_;
};

}  // namespace tessera::worker
