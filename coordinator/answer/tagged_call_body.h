// A body of tags with raw values, as Qwen3-Coder, GLM, MiniMax, Seed-OSS and DeepSeek V3.2 write
// it:
//
//   <function=NAME><parameter=KEY>VALUE</parameter></function>
//
// A value is what stands between its tags; its type comes from the function's schema
// (ToolSchemas::ToJson). A closing tag ends a value only where a tag of the
// format follows it, so that a file with such tags in it is not cut there; nor does one within a
// string of a value that is JSON.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string_view>

#include "coordinator/answer/call_body.h"
#include "coordinator/answer/tool_schemas.h"

namespace tessera::coordinator {

struct TaggedCallOptions {
  // Before and behind the function's name; an empty opening: the body begins with the name, which
  // ends at a line break or at a tag.
  std::string_view name_opening = "<function=", name_closing = ">";
  std::string_view function_closing = "</function>";  // "": the closing marker ends it
  std::string_view key_opening = "<parameter=", key_closing = ">";
  std::string_view value_opening = {};  // behind key_closing
  std::string_view value_closing = "</parameter>";
  std::string_view closing = "</tool_call>";
  // One line break at each end of a value is markup.
  bool breaks_around_value = false;
  // The key's tag says whether the value is a string: string="true" means that it is one.
  bool tag_has_type = false;
};

// `schemas` must live as long.
std::unique_ptr<CallBody> MakeTaggedCallBody(const TaggedCallOptions& options,
                                             const ToolSchemas& schemas);

}  // namespace tessera::coordinator
