#include "proto/json_message.h"

#include <google/protobuf/util/json_util.h>

#include "proto/file_text.h"
#include "proto/written_file.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;

}  // namespace

absl::Status WriteJsonMessage(const std::string& path, const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions print;
  print.add_whitespace = true;
  print.preserve_proto_field_names = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &json, print);
  if (!printed.ok())
    return absl::InternalError(StrCat(path, ": cannot be written as JSON: ", printed.ToString()));
  return WriteFileText(path, json);
}

absl::Status ReadJsonMessage(const std::string& path, google::protobuf::Message* message) {
  const absl::StatusOr<std::string> text = ReadFileText(path, kMaxBytes);
  if (!text.ok()) return text.status();
  message->Clear();
  const auto parsed = google::protobuf::util::JsonStringToMessage(*text, message);
  if (parsed.ok()) return absl::OkStatus();
  const std::string reason(parsed.message());
  return absl::InvalidArgumentError(StrCat(path, ": is no ", message->GetDescriptor()->name(),
                                           " as JSON: ", reason.substr(0, reason.find('\n'))));
}

}  // namespace tessera
