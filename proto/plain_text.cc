#include "proto/plain_text.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool IsControl(char c) { return (c >= 0 && c < ' ') || c == 0x7f; }

// Within one value of the field; empty where it has none.
std::string Within(const Message& message, const FieldDescriptor& field, int at) {
  const Reflection& reflection = *message.GetReflection();
  const std::string name = field.is_repeated() ? StrCat(field.name(), "[", at, "]") : field.name();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const std::string inner =
        FieldWithControls(field.is_repeated() ? reflection.GetRepeatedMessage(message, &field, at)
                                              : reflection.GetMessage(message, &field));
    return inner.empty() ? "" : StrCat(name, ".", inner);
  }
  if (field.type() != FieldDescriptor::TYPE_STRING || field.name().ends_with("_text")) return "";
  const std::string text = field.is_repeated() ? reflection.GetRepeatedString(message, &field, at)
                                               : reflection.GetString(message, &field);
  return HasControls(text) ? name : "";
}

}  // namespace

bool HasControls(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsControl(text[i])) return true;
    const bool wide = text[i] == '\xc2' && i + 1 < text.size();
    if (wide && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
  }
  return false;
}

std::string WithoutControls(std::string text) {
  std::replace_if(text.begin(), text.end(), IsControl, '?');
  return text;
}

std::string FieldWithControls(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int values = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < values; ++i) {
      if (std::string place = Within(message, *field, i); !place.empty()) return place;
    }
  }
  return "";
}

}  // namespace tessera
