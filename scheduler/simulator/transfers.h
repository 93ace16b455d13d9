// The KV of requests on its way from prefill to decode replicas.
//
// Layer-wise push: sending starts when the first layer of the first step is computed, so 1/layers
// of the step after its start, with all but the last layer's share of the bytes; that share follows
// when the prefill has ended. Alone on a link this leaves max(X/L, X - (1 - 1/L)*t) after a prefill
// of t seconds in one step, X = bytes / bandwidth, which is the cost model's formula; several
// chunks are taken as if each were there when the link is free for it.
// Thread rule: one thread. Units: seconds, tokens, bytes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/simulator/kv_network.h"

namespace tessera::scheduler {

class Transfers {
 public:
  Transfers(const TransferSetup& setup, size_t replicas);

  // The prefill of `tokens` tokens has its first step from `start` to `end`.
  void PrefillStarted(int32_t request, int prefill, int decode, int64_t tokens, double start,
                      double end);
  void PrefillEnded(int32_t request, int prefill, int decode, int64_t tokens, double now);
  void Drop(int32_t request, double now);

  double next_event_seconds();
  // Requests whose KV is there by now, each once.
  std::vector<int32_t> Arrived(double now);
  // Requests whose prefill has ended and whose KV has not arrived.
  std::vector<int32_t> Underway() const;

  KvNetwork& network() { return network_; }

 private:
  struct Stream {
    double bytes = 0;        // of KV
    double state_bytes = 0;  // behind the last layer
    int64_t flow = 0;        // 0: nothing on its way
    bool pushed = false;
  };
  struct Transfer {
    const std::vector<KvStream>* route = nullptr;
    std::vector<Stream> streams;
    double push_seconds = -1;  // of the entry in pushes_; below 0: there is none
    bool ended = false;        // the prefill
  };

  Transfer& Of(int32_t request, int prefill, int decode, int64_t tokens);
  void Push(int32_t request, double now);
  void Send(int32_t request, size_t stream, double bytes, double now);
  void ArriveIfThrough(int32_t request, double now);

  const TransferSetup setup_;
  const size_t replicas_;
  const std::vector<KvStream> no_streams_;
  KvNetwork network_;
  std::map<int32_t, Transfer> transfers_;
  std::set<std::pair<double, int32_t>> pushes_;    // to come
  std::set<std::pair<double, int32_t>> arrivals_;  // to come: everything was sent
};

}  // namespace tessera::scheduler
