// A worker without a model: registers with a real coordinator, accepts whatever it is configured
// with, and gives every sequence its tokens at a fixed pace. Token number i of a sequence has the
// id FakeToken(i), so that whoever reads a stream sees what is lost, doubled or out of order.
//
// Thread rule: Start and the destructor from one thread, the counters from any. Pace: tokens of one
// sequence are 1 / tokens_per_second apart from its submission on; each is due on its own, so load
// is even.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

inline constexpr int32_t kFakeTokenCycle = 300;
inline int32_t FakeToken(int64_t index) {
  return static_cast<int32_t>(100 + index % kFakeTokenCycle);
}

struct FakeWorkerOptions {
  std::string coordinator;  // host:port of its gRPC
  std::string name = "fake/0";
  // For sequences that ask for logprobs, and for the others.
  double tokens_per_second = 1;
  double logprobs_tokens_per_second = 1;
};

class FakeWorker {
 public:
  static std::unique_ptr<FakeWorker> Start(const FakeWorkerOptions& options);
  virtual ~FakeWorker() = default;
  virtual int64_t running() const = 0;
  virtual int64_t cancelled() const = 0;  // choices
  virtual int64_t sent_tokens() const = 0;
};

}  // namespace tessera
