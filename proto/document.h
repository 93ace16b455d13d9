// A YAML or JSON document -> a protobuf message of ours.
//
// Keys are the message's field names. A field whose name ends with its unit
// (bandwidth_bytes_per_second) may also be written without it (bandwidth), and then needs a
// quantity with a unit ("25 GB/s"); a bare number is accepted under the full name alone. Enums are
// written by their short name in lower case (DATA_TYPE_FLOAT16: float16). Errors name file, line,
// key and reason: unknown keys (with the nearest known one), keys given twice, missing units, wrong
// types, negative quantities, infinite numbers and such as nothing has (quantity.h), text with line
// breaks or other control characters (but for keys that end in _text), a second document. JSON is
// read as the subset of YAML that it is. Thread rule: pure functions. Limits: kMaxDocumentBytes,
// and kMaxDocumentNodes after aliases are followed.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tessera {

inline constexpr int64_t kMaxDocumentBytes = int64_t{16} << 20;
inline constexpr int64_t kMaxDocumentNodes = 1'000'000;

// Merges into `message`. `file` is the name that errors carry.
absl::Status ReadDocument(std::string_view text, std::string_view file,
                          google::protobuf::Message* message);

// The same from a file; NotFound where there is none.
absl::Status ReadDocumentFile(std::string_view path, google::protobuf::Message* message);

}  // namespace tessera
