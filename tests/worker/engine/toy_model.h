// A deterministic stand-in for the transformer: the logits of a row depend on every token of its
// sequence, read back through block table and KV slots. A wrong block id, slot, position, context
// length or rope length changes the output, and so does any write to a block that another sequence
// still needs. Where it is given seats, a row depends on the state in its sequence's seat instead,
// which is the same number: one that stands elsewhere changes the output as well.
//
// Thread rule: as worker::Model. Works on devices whose memory the host can read (the CPU device).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "worker/model/model.h"

namespace tessera::worker {

class ToyModel final : public Model {
 public:
  // rope_original > 0: tokens of sequences beyond that length leave other KV than the same tokens
  // in shorter ones, as dynamic rope scaling does.
  ToyModel(int64_t vocabulary, const StepLimits& limits, int64_t rope_original = 0)
      : vocabulary_(vocabulary),
        rope_original_(rope_original),
        logits_memory_(limits.max_logit_rows * vocabulary) {}

  // The logits that `tokens` lead to, computed without any cache.
  static std::vector<float> LogitsAfter(std::span<const int32_t> tokens, int64_t prompt_tokens,
                                        int64_t vocabulary, int64_t rope_original = 0) {
    uint64_t state = kStart;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t length = std::max<int64_t>(prompt_tokens, i + 1);
      state = Mix(state, Entry(tokens[i], i, length, rope_original));
    }
    std::vector<float> logits(vocabulary);
    Fill(state, logits.data(), vocabulary);
    return logits;
  }

  int64_t KvBlockBytes(int64_t block_tokens) const override { return block_tokens * 8; }
  absl::Status AttachKv(std::byte* memory, KvBlocks blocks, int64_t block_tokens) override {
    states_ = reinterpret_cast<uint64_t*>(memory);
    seats_ = blocks.seats;
    kv_ = states_ + seats_;
    slots_ = blocks.common * block_tokens;
    block_tokens_ = block_tokens;
    return absl::OkStatus();
  }

  int64_t seats() const override { return seats_; }
  int64_t SeatBytes() const override { return 8; }
  std::vector<kernels::TensorView> states() const override {
    return {kernels::TensorView(reinterpret_cast<std::byte*>(states_), kernels::DType::kF32,
                                {seats_, 2})};
  }

  absl::Status Forward(const StepInputs& step, kernels::Stream& stream) override {
    if (absl::Status status = stream.Synchronize(); !status.ok()) return status;
    ++forwards;
    if (on_forward) {
      if (absl::Status status = on_forward(step); !status.ok()) return status;
    }
    const int32_t* starts = step.query_starts.As<int32_t>();
    for (int64_t row = 0; row < step.token_ids.rows(); ++row) {
      const int32_t slot = step.slots.As<int32_t>()[row];
      if (slot < 0 || slot >= slots_) return absl::InternalError("slot outside the pool");
      kv_[slot] = Entry(step.token_ids.As<int32_t>()[row], step.positions.As<int32_t>()[row],
                        step.rope_lengths.As<int32_t>()[row], rope_original_);
    }
    std::vector<uint64_t> states;  // behind each row
    if (seats_ > 0) states = AdvanceSeats(step);
    for (int64_t i = 0; i < step.logit_rows.rows(); ++i) {
      const int32_t row = step.logit_rows.As<int32_t>()[i];
      int64_t sequence = 0;
      while (starts[sequence + 1] <= row) ++sequence;
      const int32_t context = step.context_lengths.As<int32_t>()[sequence];
      const int64_t position = context - (starts[sequence + 1] - row);
      Fill(seats_ > 0 ? states[row] : StateAt(step.block_tables.Row<int32_t>(sequence), position),
           logits_memory_.data() + i * vocabulary_, vocabulary_);
    }
    return absl::OkStatus();
  }

  kernels::TensorView stage_rows() const override { return {}; }
  kernels::TensorView logits() const override {
    return kernels::TensorView(
        const_cast<float*>(logits_memory_.data()), kernels::DType::kF32,
        {static_cast<int64_t>(logits_memory_.size()) / vocabulary_, vocabulary_});
  }
  int64_t weight_bytes() const override { return 1000; }
  int64_t activation_bytes() const override { return 100; }
  int64_t waiting_weight_bytes() const override { return waiting_bytes; }
  void PackWeights() override { waiting_bytes = 0; }

  int64_t forwards = 0;
  int64_t waiting_bytes = 0;
  std::function<absl::Status(const StepInputs&)> on_forward;  // may refuse the step

 private:
  static constexpr uint64_t kStart = 0x853c49e6748fea9bull;

  static uint64_t Mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ b) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 32);
  }
  static uint64_t Entry(int32_t token, int64_t position, int64_t length, int64_t rope_original) {
    const int64_t scaled = rope_original > 0 && length > rope_original ? length : 0;
    return Mix(Mix(static_cast<uint64_t>(token) + 1, position + 1), scaled);
  }
  static void Fill(uint64_t state, float* logits, int64_t vocabulary) {
    for (int64_t id = 0; id < vocabulary; ++id) {
      logits[id] = static_cast<float>(Mix(state, id + 77) >> 40) / (1 << 21) - 4.0f;
    }
  }
  std::vector<uint64_t> AdvanceSeats(const StepInputs& step) {
    std::vector<uint64_t> behind(step.token_ids.rows());
    const int32_t* starts = step.query_starts.As<int32_t>();
    for (int64_t s = 0; s < step.context_lengths.rows(); ++s) {
      const int32_t end = starts[s + 1];
      const int32_t drafts = step.draft_rows.empty() ? 0 : step.draft_rows.As<int32_t>()[s];
      uint64_t& seat = states_[step.seats.As<int32_t>()[s]];
      const bool begins = step.context_lengths.As<int32_t>()[s] == end - starts[s];
      uint64_t state = begins ? kStart : seat;
      for (int32_t row = starts[s]; row < end; ++row) {
        state = Mix(state, kv_[step.slots.As<int32_t>()[row]]);
        behind[row] = state;
        if (row + 1 == end - drafts) seat = state;
      }
    }
    return behind;
  }
  uint64_t StateAt(const int32_t* block_table, int64_t position) const {
    uint64_t state = kStart;
    for (int64_t i = 0; i <= position; ++i) {
      state = Mix(state, kv_[block_table[i / block_tokens_] * block_tokens_ + i % block_tokens_]);
    }
    return state;
  }

  int64_t vocabulary_;
  int64_t rope_original_;
  std::vector<float> logits_memory_;
  uint64_t* states_ = nullptr;  // by seat
  int64_t seats_ = 0;
  uint64_t* kv_ = nullptr;
  int64_t slots_ = 0;
  int64_t block_tokens_ = 0;
};

}  // namespace tessera::worker
