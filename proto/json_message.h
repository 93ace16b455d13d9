// A protobuf message of ours as a file of proto3 JSON, with field names as in its .proto: what one
// program of Tessera writes for another. People's files are read by proto/document.
//
// Thread rule: pure functions but for the file. Errors name the file and the reason.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"

namespace tessera {

absl::Status WriteJsonMessage(const std::string& path, const google::protobuf::Message& message);

// Replaces `message`. InvalidArgument for other text, NotFound where there is no file.
absl::Status ReadJsonMessage(const std::string& path, google::protobuf::Message* message);

}  // namespace tessera
