// Links between machines and uplinks of machines and sites that several users load.
//
// Thread rule: one thread at a time; borrows the graph. Units: bytes per second, bytes per use.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/input/cluster_graph.h"

namespace tessera::scheduler {

// Sum of the uses' rates times their bytes, at most `rate`.
struct LoadedLink {
  std::vector<std::pair<size_t, double>> uses;  // user, bytes of one use
  double rate = 0;
};

class LoadedLinks {
 public:
  explicit LoadedLinks(const ClusterGraph& graph) : graph_(graph) {}

  // What `user` sends from one machine to another each time; nothing within a machine.
  void Load(int from_machine, int to_machine, size_t user, double bytes);
  std::vector<LoadedLink> Take();

 private:
  void Add(const char* what, const std::string& from, const std::string& to, const LinkSpec& link,
           size_t user, double bytes);

  const ClusterGraph& graph_;
  std::map<std::tuple<std::string, std::string, std::string>, LoadedLink> links_;  // by their ends
};

}  // namespace tessera::scheduler
