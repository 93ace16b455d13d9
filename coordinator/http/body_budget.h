// A bound on the bytes of all request bodies in memory together. The last quarter is for small
// bodies, so that a few clients that send much, or slowly, shut nobody else out.
//
// Thread rule: thread-safe; a BodyShare from one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::coordinator {

class BodyBudget {
 public:
  // No larger than this: may use the last quarter.
  static constexpr int64_t kSmallBytes = 64 << 10;

  explicit BodyBudget(int64_t max_bytes) : max_bytes_(max_bytes) {}

  int64_t max_bytes() const { return max_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }
  // Whether a body of so many bytes can be had when nothing else is in memory.
  bool EverFits(int64_t bytes) const { return bytes <= LimitOf(bytes); }

 private:
  friend class BodyShare;
  int64_t LimitOf(int64_t body_bytes) const {
    return body_bytes <= kSmallBytes ? max_bytes_ : max_bytes_ - max_bytes_ / 4;
  }

  const int64_t max_bytes_;
  std::atomic<int64_t> used_bytes_ = 0;
};

// Why there is no room for a body: a status of HTTP, and words for the client.
struct NoRoom {
  int status = 503;
  std::string message;
};
NoRoom RefusalOf(const BodyBudget& bodies, int64_t body_bytes);

// What one body takes of the budget, given back at the end.
class BodyShare {
 public:
  explicit BodyShare(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  ~BodyShare() { budget_->used_bytes_ -= bytes_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  // The body has so many bytes now, no fewer than before. False: there is no room, and the share
  // stays as it was.
  bool Grow(int64_t bytes);
  // Whether Grow would have succeeded just now.
  bool MayGrow(int64_t bytes) const;

 private:
  const std::shared_ptr<BodyBudget> budget_;
  int64_t bytes_ = 0;
};

}  // namespace tessera::coordinator
