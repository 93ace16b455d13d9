#include "scheduler/input/workload_file.h"

#include <filesystem>
#include <utility>

#include "proto/document.h"
#include "proto/file_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTraceBytes = int64_t{1} << 30;

absl::Status ReadTrace(const std::string& path, std::vector<TraceRequest>* trace) {
  const absl::StatusOr<std::string> text = ReadFileText(path, kMaxTraceBytes);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::vector<TraceRequest>> requests = ParseTrace(*text, path);
  if (requests.ok()) *trace = *std::move(requests);
  return requests.status();
}

}  // namespace

absl::StatusOr<WorkloadFile> ReadWorkloadFile(const std::string& path) {
  WorkloadFile file;
  const fs::path at = path;
  if (at.extension() == ".csv" || at.extension() == ".jsonl") {
    if (absl::Status s = ReadTrace(path, &file.trace); !s.ok()) return s;
    return file;
  }
  v1::Workload& workload = file.workload;
  if (absl::Status s = ReadDocumentFile(path, &workload); !s.ok()) return s;
  const auto read = [&](const std::string& name) {
    return ReadFileText((at.parent_path() / name).string(), kMaxTraceBytes);
  };
  if (absl::Status s = ReadClassTraces(read, path, &workload); !s.ok()) return s;
  if (!workload.trace().empty()) {
    if (absl::Status s = ReadTrace(at.parent_path() / workload.trace(), &file.trace); !s.ok())
      return s;
  } else if (!workload.trace_text().empty()) {
    absl::StatusOr<std::vector<TraceRequest>> requests =
        ParseTrace(workload.trace_text(), StrCat(path, ": trace_text"));
    if (!requests.ok()) return requests.status();
    file.trace = *std::move(requests);
    workload.clear_trace_text();
  }
  return file;
}

}  // namespace tessera::scheduler
