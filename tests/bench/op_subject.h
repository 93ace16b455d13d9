// What tests/bench/ops.cc measures: an op with its tensors on a path of the conformance suite.
// Single-threaded; a subject lives no longer than its path.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {

struct Subject {
  std::function<absl::Status()> run;        // enqueues it once; may be called any number of times
  std::function<std::vector<float>()> out;  // its result, whatever was run before
  double bytes = 0;                         // read and written; of linears and attention: read
};
using Maker = std::function<Subject(Path&)>;
using NamedMaker = std::pair<std::string, Maker>;

// Attention over several contexts, rotation, KV, experts and sampling (ops_of_step.cc).
std::vector<NamedMaker> OpsOfStep();

}  // namespace tessera::kernels::conformance
