#include "deploy/plan_file.h"

#include <google/protobuf/util/json_util.h>

#include "proto/file_text.h"
#include "scheduler/plan_file.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {

absl::StatusOr<std::string> PlanJson(const v1::DeploymentPlan& plan) {
  google::protobuf::util::JsonPrintOptions print;
  print.add_whitespace = true;
  print.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(plan, &json, print);
  if (status.ok()) return json;
  return absl::InternalError(StrCat("the plan cannot be written as JSON: ", status.ToString()));
}

absl::StatusOr<v1::DeploymentPlan> ReadPlanFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFileText(path, scheduler::kMaxPlanBytes);
  if (!text.ok()) return text.status();
  return scheduler::ParsePlan(*text, path);
}

}  // namespace tessera::deploy
