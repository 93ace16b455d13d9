// Which pairs of tokens join, in what order, into what: an open-addressing hash table with 16 bytes
// a slot, one cache line for most look-ups. Immutable once filled, thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace tessera::coordinator {

class MergeTable {
 public:
  static constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

  struct Result {
    int32_t rank = kNoRank;  // lower joins first
    int32_t id = -1;
  };

  MergeTable() : MergeTable(0) {}
  explicit MergeTable(size_t pairs) {
    size_t slots = 16;
    int bits = 4;
    while (slots < 2 * pairs) {
      slots *= 2;
      ++bits;
    }
    slots_.resize(slots);
    shift_ = 64 - bits;
  }

  // Requires non-negative ids and at most as many pairs as announced. A pair that is there already
  // is changed.
  void Set(int32_t left, int32_t right, Result result) {
    const uint64_t key = Key(left, right);
    size_t i = Hash(key);
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {key, result};
  }

  // A Result with kNoRank where the pair does not join.
  Result Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t i = Hash(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return slots_[i].result;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no pair of non-negative ids
  struct Slot {
    uint64_t key = kEmpty;
    Result result;
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t Hash(uint64_t key) const {
    key ^= key >> 29;
    return static_cast<size_t>(key * 0x9E3779B97F4A7C15u >> shift_);
  }

  std::vector<Slot> slots_;
  int shift_ = 64;
};

}  // namespace tessera::coordinator
