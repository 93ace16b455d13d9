// A body that is a head with the function's name, then its arguments as a JSON object:
// Mistral's name[CALL_ID]id[ARGS]{..}, DeepSeek's name<｜tool▁sep｜>{..} and
// function<｜tool▁sep｜>name with a fenced object, Kimi K2's
// functions.name:0<|tool_call_argument_begin|>{..}.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string_view>

#include "coordinator/answer/call_body.h"

namespace tessera::coordinator {

struct HeadedCallOptions {
  // The function's name in the head, which is all before the first '{', without a fence; "": none.
  std::string_view (*name_of)(std::string_view head) = nullptr;
  std::string_view closing = {};  // may be missing
};

std::unique_ptr<CallBody> MakeHeadedCallBody(const HeadedCallOptions& options);

// What stands before the first of the markers, and what behind the last; all where there is none.
std::string_view Before(std::string_view text, std::string_view marker);
std::string_view Behind(std::string_view text, std::string_view marker);

}  // namespace tessera::coordinator
