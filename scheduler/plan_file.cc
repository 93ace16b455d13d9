#include "scheduler/plan_file.h"

#include <google/protobuf/util/json_util.h>

#include "proto/plain_text.h"
#include "scheduler/plan_check/plan_check.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

absl::StatusOr<v1::DeploymentPlan> ParsePlan(std::string_view text, std::string_view file) {
  v1::DeploymentPlan plan;
  const auto parsed = google::protobuf::util::JsonStringToMessage(std::string(text), &plan);
  if (!parsed.ok()) {
    // Protobuf quotes the place over several lines; the first says what is wrong.
    const std::string reason(parsed.message());
    return absl::InvalidArgumentError(StrCat(file,
                                             ": is no plan.json, as tessera plan --out writes it: ",
                                             reason.substr(0, reason.find('\n'))));
  }
  if (const std::string place = FieldWithControls(plan); !place.empty()) {
    return absl::InvalidArgumentError(
        StrCat(file, ": ", place, ": must be of one line, without control characters"));
  }
  if (absl::Status s = CheckPlan(plan); !s.ok()) {
    return absl::InvalidArgumentError(StrCat(file, ": ", StdView(s.message())));
  }
  return plan;
}

}  // namespace tessera::scheduler
