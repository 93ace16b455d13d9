// Pipelines' activations on links that KV, or other pipelines, use too.
//
// After whatever happens at a moment the network learns what the steps in progress send over their
// hops, and the replicas how much longer a byte takes than on an idle link (kv_network.h). A change
// holds from the next step on and cuts leaps behind the step in progress, so that leaping and
// stepping see the same. Replicas that are added later share nothing. Hops over links that nobody
// else uses cost what the cost table says. Thread rule: one thread. Units: seconds, bytes.
#pragma once

#include <memory>
#include <vector>

#include "scheduler/simulator/kv_network.h"
#include "scheduler/simulator/replica.h"

namespace tessera::scheduler {

class HopSharing {
 public:
  using Replicas = std::vector<std::unique_ptr<SimulatedReplica>>;

  // Finds the links that more than one use. InvalidArgument for a link that there is not.
  absl::Status Start(const TransferSetup& transfers, const Replicas& replicas);

  // `started`: the steps that start now have started. True: a replica's next end may be another.
  bool Update(double now, bool started, KvNetwork* network, Replicas& replicas);

 private:
  struct Sharing {
    int replica = 0;
    std::vector<std::vector<int>> hops;  // of its links, those that others use
    double bytes_per_second = 0;         // as last reported
    std::vector<double> delays;          // as last reported
  };
  std::vector<Sharing> sharing_;
  std::vector<int> links_;                         // of all their hops
  std::vector<KvNetwork::Background> background_;  // by link
  std::vector<double> delays_;                     // reused memory
  int64_t version_ = -1;
};

}  // namespace tessera::scheduler
