#include "deploy/plan_file.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <filesystem>

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

absl::Status CheckCanWrite(const std::string& path) {
  namespace fs = std::filesystem;
  const auto error = [&](std::string_view reason) {
    return absl::InvalidArgumentError(StrCat("cannot write ", path, ": ", reason));
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return error("it is a folder");
  if (fs::exists(path, ignored)) {
    return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : error("no right to");
  }
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!fs::is_directory(folder, ignored)) return error(StrCat("there is no folder ", folder));
  return access(folder.c_str(), W_OK | X_OK) == 0 ? absl::OkStatus()
                                                  : error(StrCat("no right to write in ", folder));
}

}  // namespace tessera::deploy
