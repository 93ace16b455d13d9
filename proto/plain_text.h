// Text that may be printed: names come from files and requests, and go to terminals and tables.
//
// Thread rule: pure functions.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace tessera {

// Line breaks, tabs, escape sequences and the like, those of UTF-8 (U+0080 to U+009F) included.
bool HasControls(std::string_view text);

// With '?' for each of them that is one byte.
std::string WithoutControls(std::string text);

// The first string of the message, or of those in it, that has such characters, as
// "machines[0].name"; empty where none has. Fields whose name ends in _text may: they are files.
std::string FieldWithControls(const google::protobuf::Message& message);

}  // namespace tessera
