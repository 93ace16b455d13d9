// A model's chat template: messages in, prompt text out, as Hugging Face renders it.
//
// Templates are Jinja as transformers runs it: ImmutableSandboxedEnvironment with trim_blocks,
// lstrip_blocks and loopcontrols, plus raise_exception, strftime_now, its own tojson and the
// generation tag. The text is equal, byte for byte, to what Python's jinja2 3.1.6 makes of the same
// template and context. What is understood:
//
//   statements  for (tuple targets, `if` filter, else, recursive), break, continue, if/elif/else,
//   set (names,
//               tuples, namespace attributes, blocks with filters), macro (defaults, keywords,
//               varargs, kwargs, caller), call, filter, with, print, generation, raw, comments, and
//               the whitespace marks - and +
//   loop        index index0 revindex revindex0 first last length previtem nextitem depth depth0
//               cycle() changed(); loop(items) of a recursive one
//   operators   + - * / // % ** ~, comparisons (chained), in, not in, is, is not, and, or, not,
//   inline
//               if, calls with * and **, attributes, items, slices with steps, and literals:
//               strings, integers (127 bits), floats, lists, tuples, dicts, true/false/none
//   tests       boolean callable defined divisibleby eq/equalto/== escaped even false filter float
//               ge/>= gt/greaterthan/> in integer iterable le/<= lower lt/lessthan/< mapping ne/!=
//               none number odd sameas sequence string test true undefined upper
//   filters     abs attr batch capitalize center count d/default dictsort e/escape filesizeformat
//               first float forceescape format groupby indent int items join last length list lower
//               map max min pprint random reject rejectattr replace reverse round safe select
//               selectattr slice sort string striptags sum title tojson trim truncate unique upper
//               urlencode wordcount wordwrap xmlattr
//   functions   range dict namespace cycler joiner raise_exception strftime_now
//   str         capitalize center count endswith find format index isalnum isalpha isascii
//   isdecimal
//               isdigit islower isnumeric isspace istitle isupper join ljust lower lstrip partition
//               removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split
//               splitlines startswith strip swapcase title upper zfill
//   dict, list  copy get items keys values; copy count index (also of tuples)
//
// Anything else is refused by Parse with its line; only filters and tests that are not known may
// stand behind an `if`, and fail where they are reached, as in jinja2. Strings keep, for
// every character, whether the template or the client wrote it; Render returns the text cut where
// that changes.
//
// Rendering is bounded: RenderLimits, and a fixed bound on nesting. An error while rendering is
// InvalidArgument, because it depends on the request: raise_exception's message, a missing field, a
// limit. Its text ends with the template's line.
//
// Immutable; every method may be called from any thread. Owns the parsed template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/chat_template_limits.h"
#include "coordinator/tokenizer/text_segment.h"

namespace tessera::coordinator {

namespace jinja {
struct Template;
}

class ChatTemplate {
 public:
  // The template of a Hugging Face folder: chat_template.jinja (with
  // additional_chat_templates/NAME.jinja), else chat_template.json's, else tokenizer_config.json's
  // chat_template (a string or a list of named ones). `name` picks one of several; empty means
  // "default", and "tool_use", where there is one, for requests with tools. Special tokens of
  // tokenizer_config.json (bos_token, ...) are defaults of the context. NotFound where the folder
  // has no template, InvalidArgument with file and line where it cannot be used; a "tool_use" that
  // cannot be used fails the requests with tools only.
  static absl::StatusOr<ChatTemplate> Load(const std::filesystem::path& model_folder,
                                           std::string_view name = "");

  // The template in `file` in place of the folder's own. NotFound where there is no such file,
  // InvalidArgument with file and line where it cannot be used.
  static absl::StatusOr<ChatTemplate> LoadFile(const std::filesystem::path& file,
                                               const std::filesystem::path& model_folder);

  // Parses one template's source. InvalidArgument with the line.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source);

  // Renders with `context`, an object with the template's variables: messages, tools,
  // add_generation_prompt, bos_token, eos_token, ... The members of its object chat_template_kwargs
  // become variables too and win over all but messages and tools. As in transformers, tools and
  // documents are none and add_generation_prompt is false where they are not given. All strings are
  // the client's, except top-level ones named *_token. `now_unix_seconds` is what strftime_now
  // tells, in UTC.
  absl::StatusOr<std::vector<TextSegment>> Render(const nlohmann::json& context,
                                                  int64_t now_unix_seconds,
                                                  const RenderLimits& limits = {}) const;

  // The same for a context that keeps its objects' members in the client's order, as Python does:
  // the order shows where a template prints an object (tools | tojson).
  absl::StatusOr<std::vector<TextSegment>> RenderOrdered(const nlohmann::ordered_json& context,
                                                         int64_t now_unix_seconds,
                                                         const RenderLimits& limits = {}) const;

  // The text of the template that renders requests without tools.
  const std::string& source() const { return source_; }
  // Whether the template's own text contains `word`.
  bool Names(std::string_view word) const { return source_.find(word) != std::string::npos; }
  // The same of what renders requests with tools.
  bool NamesForTools(std::string_view word) const {
    return (tool_template_ ? tool_source_ : source_).find(word) != std::string::npos;
  }

 private:
  ChatTemplate() = default;

  template <typename Json>
  absl::StatusOr<std::vector<TextSegment>> RenderJson(const Json& context, int64_t now_unix_seconds,
                                                      const RenderLimits& limits) const;

  std::shared_ptr<const jinja::Template> template_;
  std::shared_ptr<const jinja::Template> tool_template_;  // null: template_ serves tools too
  absl::Status tool_status_;                              // why there is none that could be used
  std::string source_;                                    // of template_
  std::string tool_source_;                               // of tool_template_
  std::vector<std::pair<std::string, std::string>> special_tokens_;
};

}  // namespace tessera::coordinator
