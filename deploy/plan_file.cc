#include "deploy/plan_file.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

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
  const bool exists = fs::exists(path, ignored);
  if (exists && access(path.c_str(), W_OK) != 0) return error("no right to");
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!fs::is_directory(folder, ignored)) return error(StrCat("there is no folder ", folder));
  if (!exists && access(folder.c_str(), W_OK | X_OK) != 0)
    return error(StrCat("no right to write in ", folder));
  // Rights are not all: a file system may be read-only.
  const bool opens = std::ofstream(path, std::ios::binary | std::ios::app).is_open();
  if (opens && !exists) fs::remove(path, ignored);
  return opens ? absl::OkStatus() : error(std::strerror(errno));
}

}  // namespace tessera::deploy
