#include "proto/document.h"

#include <google/protobuf/descriptor.h>
#include <utf8proc.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "proto/file_text.h"
#include "proto/plain_text.h"
#include "proto/quantity.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

bool IsUtf8(const std::string& text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t size = utf8proc_iterate(bytes, left, &code_point);
    if (size <= 0) return false;
    bytes += size;
    left -= size;
  }
  return true;
}

constexpr double kHighestNumber = 1e18;  // of those without a unit

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

struct Suffix {
  std::string_view name;
  Dimension dimension;
};

constexpr std::array<Suffix, 5> kSuffixes = {{{"_bytes_per_second", Dimension::kBytesPerSecond},
                                              {"_flops_per_second", Dimension::kFlopsPerSecond},
                                              {"_usd_per_hour", Dimension::kUsdPerHour},
                                              {"_seconds", Dimension::kSeconds},
                                              {"_bytes", Dimension::kBytes}}};

std::optional<Suffix> SuffixOf(std::string_view field_name) {
  for (const Suffix& suffix : kSuffixes) {
    if (field_name.ends_with(suffix.name)) return suffix;
  }
  return std::nullopt;
}

std::string_view WithoutUnit(std::string_view field_name) {
  const std::optional<Suffix> suffix = SuffixOf(field_name);
  if (suffix) field_name.remove_suffix(suffix->name.size());
  return field_name;
}

// As examples and errors write the key: "memory", but "dense_flops_per_second", as "dense" alone
// would not say what of.
std::string_view ShownName(std::string_view field_name) {
  const std::optional<Suffix> suffix = SuffixOf(field_name);
  const bool whole = suffix && suffix->dimension == Dimension::kFlopsPerSecond;
  return whole ? field_name : WithoutUnit(field_name);
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t cost =
          std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = row[j];
      row[j] = cost;
    }
  }
  return row.back();
}

// "float16" for DATA_TYPE_FLOAT16 of enum DataType.
std::string ShortName(const EnumDescriptor& type, const std::string& value) {
  size_t prefix = 0;  // letters of the type's name, underscores aside
  size_t at = 0;
  while (at < value.size() && prefix < type.name().size()) {
    if (value[at] != '_') ++prefix;
    ++at;
  }
  std::string name = value.substr(std::min(at + 1, value.size()));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return name;
}

// Numbers whose zero in a message is "not given", and gets a default. Who writes a zero means zero,
// and would be answered about something else.
struct NotZero {
  std::string_view field;  // or the message, for all its numbers
  std::string_view instead;
};

constexpr std::array<NotZero, 8> kNotZero = {
    {{"tessera.v1.DeviceGroup.count", "leave the devices out where there are none"},
     {"tessera.v1.DeviceGroup.memory_bytes", "leave it out for the kind's"},
     {"tessera.v1.Machine.available", "leave the machine out where there is none"},
     {"tessera.v1.Machine.spot_available", "leave spot_price out where there is none"},
     {"tessera.v1.Machine", "leave it out where it is not known"},
     {"tessera.v1.DeviceKind", "leave it out for the catalogue's, or write a small one"},
     {"tessera.v1.LengthSample.weight", "leave these lengths out where there are none"},
     {"tessera.v1.Workload.arrival_variation",
      "write a small one for even arrivals, such as 0.01"}}};

// Empty: a zero is a zero there.
std::string_view InsteadOfZero(const FieldDescriptor& field) {
  for (const NotZero& one : kNotZero) {
    if (field.full_name() == one.field || field.containing_type()->full_name() == one.field)
      return one.instead;
  }
  return "";
}

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  absl::Status ReadMap(const YAML::Node& node, const std::string& place, Message* message) {
    if (absl::Status s = Count(node, place); !s.ok()) return s;
    if (node.IsNull()) return absl::OkStatus();
    if (!node.IsMap()) return Fail(node, place, "must be a mapping of keys to values");
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar())
        return Fail(entry.first, place, "has a key that is no plain text");
      const std::string key = entry.first.Scalar();
      const std::string at = place.empty() ? key : StrCat(place, ".", key);
      bool short_name = false;
      const FieldDescriptor* field = FindField(*message->GetDescriptor(), key, &short_name);
      if (field == nullptr) {
        return Fail(entry.first, at,
                    StrCat("unknown key", Nearest(*message->GetDescriptor(), key)));
      }
      if (!seen.insert(field->name()).second) return Fail(entry.first, at, "is given twice");
      if (absl::Status s = ReadField(entry.second, at, *field, short_name, message); !s.ok())
        return s;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Fail(const YAML::Node& node, std::string_view place, std::string_view reason) const {
    const std::string line = node.Mark().line >= 0 ? StrCat(":", node.Mark().line + 1) : "";
    return absl::InvalidArgumentError(StrCat(
        file_, line, ": ", WithoutControls(StrCat(place, place.empty() ? "" : ": ", reason))));
  }

  absl::Status Count(const YAML::Node& node, std::string_view place) {
    if (++nodes_ <= kMaxDocumentNodes) return absl::OkStatus();
    return Fail(node, place, StrCat("the document has more than ", kMaxDocumentNodes, " values"));
  }

  static const FieldDescriptor* FindField(const Descriptor& type, const std::string& key,
                                          bool* short_name) {
    *short_name = false;
    if (const FieldDescriptor* field = type.FindFieldByName(key)) return field;
    for (int i = 0; i < type.field_count(); ++i) {
      const std::string& name = type.field(i)->name();
      if (!SuffixOf(name) || WithoutUnit(name) != key) continue;
      *short_name = true;
      return type.field(i);
    }
    return nullptr;
  }

  // What may be meant: names that hold all of the key ("variation": arrival_variation), else the
  // one that differs in the fewest letters.
  static std::string Nearest(const Descriptor& type, const std::string& key) {
    // People call a rate what names here say is per second.
    const std::string words = StrCat("_", key == "rate" ? "per_second" : key, "_");
    std::string holding, best, known;
    // Most letters of a short key must be right: any other is as near.
    size_t distance = std::min(std::max<size_t>(3, key.size() / 3 + 1), (key.size() + 1) / 2);
    for (int i = 0; i < type.field_count(); ++i) {
      const std::string name(ShownName(type.field(i)->name()));
      known += StrCat(i == 0 ? "" : ", ", name);
      if (StrCat("_", name, "_").find(words) != std::string::npos)
        holding += StrCat(holding.empty() ? "" : " or ", name);
      const size_t d = EditDistance(key, name);
      if (d >= distance) continue;
      distance = d;
      best = name;
    }
    if (!holding.empty()) return StrCat("; did you mean ", holding, "?");
    if (!best.empty()) return StrCat("; did you mean ", best, "?");
    return StrCat("; known here: ", known);
  }

  absl::Status ReadField(const YAML::Node& node, const std::string& place,
                         const FieldDescriptor& field, bool short_name, Message* message) {
    if (node.IsNull()) return absl::OkStatus();
    const Reflection& reflection = *message->GetReflection();
    if (!field.is_repeated()) {
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        return ReadMap(node, place, reflection.MutableMessage(message, &field));
      }
      return ReadScalar(node, place, field, short_name, message);
    }
    if (!node.IsSequence()) return Fail(node, place, "must be a list");
    for (size_t i = 0; i < node.size(); ++i) {
      const std::string at = StrCat(place, "[", i, "]");
      absl::Status status = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                                ? ReadMap(node[i], at, reflection.AddMessage(message, &field))
                                : ReadScalar(node[i], at, field, short_name, message);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReadScalar(const YAML::Node& node, const std::string& place,
                          const FieldDescriptor& field, bool short_name, Message* message) {
    if (absl::Status s = Count(node, place); !s.ok()) return s;
    if (!node.IsScalar()) return Fail(node, place, "must be a single value");
    const Reflection& reflection = *message->GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        // The reader of YAML hands on what it can't decode, and plans could not be written.
        if (!IsUtf8(node.Scalar())) {
          return Fail(node, place, "must be UTF-8: save the file in that encoding");
        }
        // Traces have lines; names with such characters would garble every output.
        if (!field.name().ends_with("_text") && HasControls(node.Scalar())) {
          return Fail(node, place,
                      "must be of one line, without tabs and other control characters");
        }
        if (field.is_repeated()) {
          reflection.AddString(message, &field, node.Scalar());
        } else {
          reflection.SetString(message, &field, node.Scalar());
        }
        return absl::OkStatus();
      case FieldDescriptor::CPPTYPE_BOOL: return ReadBool(node, place, field, message);
      case FieldDescriptor::CPPTYPE_ENUM: return ReadEnum(node, place, field, message);
      default: return ReadNumber(node, place, field, short_name, message);
    }
  }

  absl::Status ReadBool(const YAML::Node& node, const std::string& place,
                        const FieldDescriptor& field, Message* message) {
    bool value = false;
    if (!YAML::convert<bool>::decode(node, value))
      return Fail(node, place, "must be true or false");
    message->GetReflection()->SetBool(message, &field, value);
    return absl::OkStatus();
  }

  absl::Status ReadEnum(const YAML::Node& node, const std::string& place,
                        const FieldDescriptor& field, Message* message) {
    const EnumDescriptor& type = *field.enum_type();
    std::string known;
    for (int i = 0; i < type.value_count(); ++i) {
      const std::string name = ShortName(type, type.value(i)->name());
      if (node.Scalar() == name || node.Scalar() == type.value(i)->name()) {
        message->GetReflection()->SetEnumValue(message, &field, type.value(i)->number());
        return absl::OkStatus();
      }
      if (i > 0) known += StrCat(known.empty() ? "" : ", ", name);
    }
    return Fail(node, place, StrCat("\"", node.Scalar(), "\" is none of ", known));
  }

  // A quantity with a unit, or a bare number where the key names its unit.
  absl::StatusOr<double> NumberOf(const YAML::Node& node, const std::string& place,
                                  const FieldDescriptor& field, bool short_name) const {
    const std::string& text = node.Scalar();
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool bare = end != text.c_str() && *end == '\0';
    const std::optional<Suffix> suffix = SuffixOf(field.name());
    if (bare && !short_name) {
      if (!std::isfinite(number)) return Fail(node, place, "must be a finite number");
      // No quantity of ours has a direction; plain numbers may.
      if (suffix && number < 0) return Fail(node, place, "must not be negative");
      if (std::abs(number) > (suffix ? Highest(suffix->dimension) : kHighestNumber))
        return Fail(node, place, StrCat("\"", text, "\" is too large"));
      return number;
    }
    if (!suffix) {
      if (text.ends_with('%')) {
        const absl::StatusOr<double> ratio = ParseQuantity(text, Dimension::kRatio);
        if (ratio.ok()) return *ratio;
      }
      return Fail(node, place, StrCat("\"", text, "\" is not a number"));
    }
    if (bare) {
      return Fail(node, place,
                  StrCat("\"", text, "\" has no unit; write for example \"",
                         Example(suffix->dimension), "\", or a bare number as ", field.name()));
    }
    const absl::StatusOr<double> quantity = ParseQuantity(text, suffix->dimension);
    if (!quantity.ok()) return Fail(node, place, StdView(quantity.status().message()));
    return *quantity;
  }

  absl::Status ReadNumber(const YAML::Node& node, const std::string& place,
                          const FieldDescriptor& field, bool short_name, Message* message) {
    const absl::StatusOr<double> number = NumberOf(node, place, field, short_name);
    if (!number.ok()) return number.status();
    if (const std::string_view instead = InsteadOfZero(field); *number == 0 && !instead.empty())
      return Fail(node, place, StrCat("must be above 0; ", instead));
    const Reflection& reflection = *message->GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      if (field.is_repeated()) {
        reflection.AddDouble(message, &field, *number);
      } else {
        reflection.SetDouble(message, &field, *number);
      }
      return absl::OkStatus();
    }
    const bool narrow = field.cpp_type() == FieldDescriptor::CPPTYPE_INT32;
    const double most = narrow ? std::numeric_limits<int32_t>::max() : 9007199254740992.0;
    if (std::abs(*number) > most)
      return Fail(node, place, StrCat("\"", node.Scalar(), "\" is too large"));
    // Quantities of bytes may come out with a fraction ("22.5 GiB" does not, "0.1 GB" might).
    if (!SuffixOf(field.name()) && *number != std::floor(*number)) {
      return Fail(node, place, StrCat("\"", node.Scalar(), "\" is not a whole number"));
    }
    const auto whole = static_cast<int64_t>(std::llround(*number));
    if (narrow) {
      const auto value = static_cast<int32_t>(whole);
      field.is_repeated() ? reflection.AddInt32(message, &field, value)
                          : reflection.SetInt32(message, &field, value);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      field.is_repeated() ? reflection.AddInt64(message, &field, whole)
                          : reflection.SetInt64(message, &field, whole);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64 && !field.is_repeated()) {
      if (whole < 0) return Fail(node, place, "must not be negative");
      reflection.SetUInt64(message, &field, static_cast<uint64_t>(whole));
    } else {
      return Fail(node, place, "cannot be given in a document");
    }
    return absl::OkStatus();
  }

  std::string file_;
  int64_t nodes_ = 0;
};

// The line, from 1, at which something stands behind the end of the first document ("---" or
// "..." at the beginning of a line), or 0. YAML::LoadAll would tell, but never returns from some
// texts: it does not get past what it cannot read.
int SecondDocumentLine(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  bool any = false, ended = false;
  for (int line = 1; !text.empty(); ++line) {
    std::string_view rest = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), rest.size() + 1));
    const bool marks = (rest.starts_with("---") || rest.starts_with("...")) &&
                       (rest.size() == 3 || kBlanks.find(rest[3]) != kBlanks.npos);
    if (marks) {
      ended = any;
      rest.remove_prefix(3);
    }
    const size_t first = rest.find_first_not_of(kBlanks);
    if (first == rest.npos || rest[first] == '#' || (!any && rest[0] == '%')) continue;
    if (ended) return line;
    any = true;
  }
  return 0;
}

}  // namespace

absl::Status ReadDocument(std::string_view text, std::string_view file, Message* message) {
  if (static_cast<int64_t>(text.size()) > kMaxDocumentBytes) {
    return absl::InvalidArgumentError(
        StrCat(file, ": is larger than ", kMaxDocumentBytes, " bytes"));
  }
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (const int line = SecondDocumentLine(text); line > 0) {
      return absl::InvalidArgumentError(
          StrCat(file, ":", line, ": another document begins here, after \"---\"; a file has one"));
    }
    if (root.IsNull()) return absl::InvalidArgumentError(StrCat(file, ": the document is empty"));
    return Reader(file).ReadMap(root, "", message);
  } catch (const YAML::Exception& e) {
    const std::string line = e.mark.line >= 0 ? StrCat(":", e.mark.line + 1) : "";
    return absl::InvalidArgumentError(StrCat(file, line, ": is neither YAML nor JSON: ", e.msg));
  }
}

absl::Status ReadDocumentFile(std::string_view path, Message* message) {
  const absl::StatusOr<std::string> text = ReadFileText(std::string(path), kMaxDocumentBytes);
  if (!text.ok()) return text.status();
  return ReadDocument(*text, path, message);
}

}  // namespace tessera
