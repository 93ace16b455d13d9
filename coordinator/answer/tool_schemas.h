// The functions that a request offers: their names, and what type an argument of theirs has, for
// formats that write values without saying so.
//
// Thread rule: immutable, any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tessera::coordinator {

class ToolSchemas {
 public:
  ToolSchemas() = default;
  // OpenAI's `tools`, already checked: objects with function.name. Others are passed over.
  explicit ToolSchemas(const nlohmann::ordered_json& tools);

  bool Has(std::string_view function) const { return functions_.contains(std::string(function)); }

  // Whether a value that was written as bare text is a string, whatever it looks like.
  bool IsText(std::string_view function, std::string_view argument) const;
  // A value that was written as bare text, as JSON: a string, unless the function's schema (its
  // $ref within itself and anyOf followed) has another type for the argument and the text is a
  // value of it, as JSON or Python writes it. Where a string is allowed too, it is one.
  std::string ToJson(std::string_view function, std::string_view argument,
                     std::string_view text) const;

 private:
  // The type that its schema names; empty: any, or not known.
  std::set<std::string> TypesOf(std::string_view function, std::string_view argument) const;

  std::unordered_map<std::string, nlohmann::ordered_json> functions_;  // name -> parameters
};

}  // namespace tessera::coordinator
