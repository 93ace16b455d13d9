// Seats: places of fixed size for what layers keep of a sequence beside blocks of tokens. A fixed
// number of them, each held by one sequence at most.
//
// Only numbers live here; the memory belongs to the workers. Thread rule: one thread (the
// engine's). Memory is allocated by the constructor only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::kvcache {

class SeatPool {
 public:
  explicit SeatPool(int32_t seats) {
    for (int32_t seat = seats; seat > 0; --seat) free_.push_back(seat - 1);
  }
  SeatPool(const SeatPool&) = delete;
  SeatPool& operator=(const SeatPool&) = delete;

  int64_t free_seats() const { return static_cast<int64_t>(free_.size()); }

 private:
  friend class Seat;

  std::vector<int32_t> free_;  // stack
  uint64_t given_ = 0;
};

// The seat of one sequence, or none. Move-only; must not outlive its pool.
class Seat {
 public:
  static constexpr int32_t kNone = -1;

  // `pool` null: there are no seats, and none is needed.
  explicit Seat(SeatPool* pool) : pool_(pool) {}
  Seat(Seat&& other) noexcept
      : pool_(other.pool_), number_(std::exchange(other.number_, kNone)), owner_(other.owner_) {}
  Seat& operator=(Seat&& other) noexcept {
    if (this == &other) return *this;
    Clear();
    pool_ = other.pool_;
    number_ = std::exchange(other.number_, kNone);
    owner_ = other.owner_;
    return *this;
  }
  ~Seat() { Clear(); }

  // Takes a free seat; false: there is none. Requires that it has none yet.
  bool Take() {
    if (pool_ == nullptr) return true;
    if (pool_->free_.empty()) return false;
    number_ = pool_->free_.back();
    pool_->free_.pop_back();
    owner_ = ++pool_->given_;
    return true;
  }
  void Clear() {
    if (number_ != kNone) pool_->free_.push_back(std::exchange(number_, kNone));
  }

  int32_t number() const { return number_; }
  // Another one each time that a seat of the pool is taken.
  uint64_t owner() const { return owner_; }

 private:
  SeatPool* pool_;
  int32_t number_ = kNone;
  uint64_t owner_ = 0;
};

}  // namespace tessera::kvcache
