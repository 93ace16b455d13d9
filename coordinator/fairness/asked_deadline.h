// The deadline of a call, as its headers (of gRPC: its metadata) say it:
//
//   x-request-deadline      when the answer should be there: seconds from now ("2.5", "2.5s",
//                           "1500ms"), or a time (RFC 3339), which may have passed; an hour away
//                           at most
//   x-workflow-id           calls with one id share the deadline that one of them named
//   x-workflow-stages-left  of calls that follow each other so many are left, this one included
//
// Thread rule: pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

// Values of the headers; empty where absent, a space where there is one without a value.
struct DeadlineHeaders {
  std::string deadline = "", workflow = "", stages_left = "";
};

struct AskedDeadline {
  std::optional<double> seconds;  // from now on
  std::string workflow;
  int32_t stages_left = 1;

  void ApplyTo(GenerationRequest& request) const;
};

// INVALID_ARGUMENT names the header and what it takes.
absl::StatusOr<AskedDeadline> ReadDeadline(const DeadlineHeaders& headers, double now_unix_seconds);

}  // namespace tessera::coordinator
