// A workload as people name it: a description (YAML, JSON), whose traces stand beside it, or a
// trace by itself (.csv, .jsonl).
//
// Thread rule: pure but for the files it reads. Errors name the file, the line or key, and the
// reason.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/workload.pb.h"
#include "scheduler/input/workload_samples.h"

namespace tessera::scheduler {

struct WorkloadFile {
  v1::Workload workload;            // classes have the lengths of their traces
  std::vector<TraceRequest> trace;  // of the workload as a whole; empty: it has classes
};

absl::StatusOr<WorkloadFile> ReadWorkloadFile(const std::string& path);

}  // namespace tessera::scheduler
