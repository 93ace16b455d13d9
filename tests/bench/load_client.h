// Many streams of /v1/completions at once over loopback, read by one epoll loop, each checked token
// by token against FakeToken.
//
// Thread rule: one thread. Bounds: every Run ends by itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

struct StreamSpec {
  int32_t max_tokens = 60;
  int32_t logprobs = -1;  // as in the request; -1: none
  bool reads = true;      // false: the socket is opened and never read
  std::string prompt = "What";
  std::string path = "/v1/completions";
};

struct StreamState {
  int64_t tokens = 0;               // in order so far
  bool in_order = true;             // false: one was lost, doubled or wrong
  bool complete = false;            // [DONE] came after max_tokens tokens
  bool closed = false;              // by the other side
  double first_token_seconds = -1;  // since the request was sent
};

class LoadClient {
 public:
  static std::unique_ptr<LoadClient> Connect(uint16_t port);
  virtual ~LoadClient() = default;
  // Opens one stream; its index. -1: no socket (open-file limit?).
  virtual int Open(const StreamSpec& spec) = 0;
  // Reads for so long, or until all that read are complete or closed.
  virtual void Run(double seconds) = 0;
  virtual const StreamState& state(int stream) const = 0;
  virtual int streams() const = 0;
  // Seconds between events of one stream, of all streams, since the last TakeGaps.
  virtual std::vector<float> TakeGaps() = 0;
};

// Sorts; 0 for none. `share` is 0.99 for p99.
double Quantile(std::vector<float>& values, double share);

}  // namespace tessera
