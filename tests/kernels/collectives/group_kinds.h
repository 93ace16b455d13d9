// Every implementation of kernels/collectives/group.h, for the conformance suite: a new one is an
// entry here. Also the threads that play a group's ranks. One thread at a time, except as said.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "kernels/collectives/group.h"
#include "kernels/links/link.h"

namespace tessera::tests {

using Groups = std::vector<std::unique_ptr<kernels::Group>>;

struct GroupKind {
  std::string name;
  // One group of `size` ranks in this process, in rank order.
  std::function<Groups(int size, const kernels::GroupOptions& options)> create;
  // NCCL says neither which rank did not come, nor that ranks make different calls.
  bool by_nccl = false;
  // Its sums do not meet its other calls, so that a rank which makes another call is a late one.
  bool sums_apart = false;
};

const std::vector<GroupKind>& GroupKinds();

// links[a][b] leads from a to b; null where a == b. `transport` as in transports.h.
std::vector<std::vector<std::shared_ptr<kernels::Link>>> ConnectMesh(int size,
                                                                     const std::string& transport);

// CHECK for threads, which Catch2's is not made for: what did not hold is kept with its place.
class Expectations {
 public:
  void operator()(bool holds, std::source_location place = std::source_location::current()) {
    if (!holds) failures_.push_back("line " + std::to_string(place.line()));
  }
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  std::vector<std::string> failures_;
};

// Runs `play` for each rank on a thread of its own, with a stream of its own; returns what each
// stream's Synchronize said after it. Expectations that failed fail the test.
using Play = std::function<void(kernels::Group&, kernels::Stream&, Expectations& expect)>;
std::vector<absl::Status> PlayRanks(const Groups& groups, const Play& play);

}  // namespace tessera::tests
