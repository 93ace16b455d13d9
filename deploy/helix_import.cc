#include "deploy/helix_import.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

constexpr int kMaxNodes = 10'000;

struct Value {
  std::string text;
  int line = 0;
};
using Section = std::map<std::string, Value>;
using Sections = std::map<std::string, Section>;

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

absl::Status Error(std::string_view file, int line, std::string_view reason) {
  return absl::InvalidArgumentError(StrCat(file, ":", line, ": ", reason));
}

absl::StatusOr<Sections> ReadIni(std::string_view text, std::string_view file) {
  Sections sections;
  Section* section = nullptr;
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t end = text.find('\n');
    const std::string_view line = Trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      if (line.back() != ']') return Error(file, line_number, "the section's name has no ]");
      section = &sections[std::string(line.substr(1, line.size() - 2))];
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || section == nullptr)
      return Error(file, line_number, "is neither [section] nor key=value within one");
    (*section)[std::string(Trimmed(line.substr(0, equals)))] = {
        std::string(Trimmed(line.substr(equals + 1))), line_number};
  }
  return sections;
}

const std::map<std::string, double, std::less<>>& Units() {
  static const auto& units = *new std::map<std::string, double, std::less<>>{
      {"kbps", 1e3}, {"mbps", 1e6},      {"gbps", 1e9},     {"Sec", 1},
      {"sec", 1},    {"MilliSec", 1e-3}, {"MicroSec", 1e-6}};
  return units;
}

// "1000 * mbps".
absl::StatusOr<double> Product(const Value& value, std::string_view file) {
  const size_t star = value.text.find('*');
  char* end = nullptr;
  const double number = std::strtod(value.text.c_str(), &end);
  if (end == value.text.c_str() || star == std::string::npos)
    return Error(file, value.line, StrCat("\"", value.text, "\" is not like \"10 * gbps\""));
  const auto unit = Units().find(Trimmed(std::string_view(value.text).substr(star + 1)));
  if (unit == Units().end() || !(number >= 0) || number > 1e12)
    return Error(file, value.line,
                 StrCat("\"", value.text,
                        "\" is no number times kbps, mbps, gbps, Sec, MilliSec or MicroSec"));
  return number * unit->second;
}

std::optional<int> NodeNumber(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

struct NodeType {
  std::string kind;
  int count = 1;
};

// "T4x4" is four T4.
NodeType TypeNamed(std::string name) {
  NodeType type;
  const size_t x = name.rfind('x');
  if (x != std::string::npos && x > 0 && x + 1 < name.size()) {
    if (const std::optional<int> count = NodeNumber(std::string_view(name).substr(x + 1))) {
      type.count = std::max(1, *count);
      name.erase(x);
    }
  }
  if (name == "A100") name = "A100-40";
  if (name == "V100") name = "V100-16";
  type.kind = name;
  return type;
}

struct HelixLink {
  double bytes_per_second = 0, seconds = 0;
  auto operator<=>(const HelixLink&) const = default;
};

std::string Show(const HelixLink& link) {
  return absl::StrFormat("{bandwidth: %.12g MB/s, latency: %.12g ms}", link.bytes_per_second / 1e6,
                         link.seconds * 1e3);
}

class Importer {
 public:
  Importer(std::string_view file, std::string_view profiles_file)
      : file_(file), profiles_file_(profiles_file) {}

  absl::StatusOr<std::string> Run(const Sections& cluster, const Sections& profiles) {
    for (const auto& [name, section] : cluster) {
      absl::Status read = absl::OkStatus();
      if (name.rfind("ComputeNode-", 0) == 0) read = ReadNode(name, section);
      if (name.rfind("Link-", 0) == 0) read = ReadLink(name, section);
      if (!read.ok()) return read;
    }
    if (nodes_.empty())
      return absl::InvalidArgumentError(StrCat(file_, ": has no [ComputeNode-0]"));
    for (const auto& [ends, link] : links_) {
      for (const int end : {ends.first, ends.second}) {
        if (!nodes_.contains(end))
          return absl::InvalidArgumentError(StrCat(file_, ": [Link-", ends.first, "-", ends.second,
                                                   "]: there is no [ComputeNode-", end, "]"));
      }
    }
    return Write(cluster, profiles);
  }

 private:
  absl::Status ReadNode(const std::string& name, const Section& section) {
    const std::optional<int> number = NodeNumber(std::string_view(name).substr(12));
    const auto type = section.find("type");
    if (!number || *number >= kMaxNodes)
      return absl::InvalidArgumentError(
          StrCat(file_, ": [", name, "]: is no number from 0 to ", kMaxNodes - 1));
    if (type == section.end())
      return absl::InvalidArgumentError(StrCat(file_, ": [", name, "]: has no type"));
    nodes_[*number] = type->second.text;
    return absl::OkStatus();
  }

  absl::Status ReadLink(const std::string& name, const Section& section) {
    const std::string_view ends = std::string_view(name).substr(5);
    const size_t dash = ends.find('-');
    if (dash == std::string_view::npos)
      return absl::InvalidArgumentError(StrCat(file_, ": [", name, "]: joins no two nodes"));
    const std::optional<int> from = NodeNumber(ends.substr(0, dash));
    const std::optional<int> to = NodeNumber(ends.substr(dash + 1));
    if (!from || !to) return absl::OkStatus();  // source or sink
    const auto bandwidth = section.find("bandwidth"), latency = section.find("latency");
    if (bandwidth == section.end() || latency == section.end())
      return absl::InvalidArgumentError(
          StrCat(file_, ": [", name, "]: needs bandwidth and latency"));
    const absl::StatusOr<double> bytes = Product(bandwidth->second, file_);
    if (!bytes.ok()) return bytes.status();
    if (*bytes <= 0) return Error(file_, bandwidth->second.line, "bandwidth must be above 0");
    const absl::StatusOr<double> seconds = Product(latency->second, file_);
    if (!seconds.ok()) return seconds.status();
    links_[{*from, *to}] = {*bytes, *seconds};
    return absl::OkStatus();
  }

  // The rate of what enters or leaves a node of this type; 0: nothing is said.
  absl::StatusOr<double> NicOf(const std::string& type, const Sections& cluster,
                               const Sections& profiles) const {
    double least = 0;
    for (const bool second : {false, true}) {
      const Sections& sections = second ? profiles : cluster;
      const auto section = sections.find(type);
      if (section == sections.end()) continue;
      for (const char* key : {"inbound_nic_speed", "outbound_nic_speed"}) {
        const auto value = section->second.find(key);
        if (value == section->second.end() || value->second.text == "-1") continue;
        const absl::StatusOr<double> bytes =
            Product(value->second, second ? profiles_file_ : file_);
        if (!bytes.ok()) return bytes.status();
        if (*bytes > 0 && (least == 0 || *bytes < least)) least = *bytes;
      }
    }
    return least;
  }

  absl::StatusOr<std::string> Write(const Sections& cluster, const Sections& profiles) const {
    std::string out = StrCat("# From ", file_, ", by tessera plan import-helix.\nmachines:\n");
    for (const auto& [number, type_name] : nodes_) {
      const NodeType type = TypeNamed(type_name);
      const absl::StatusOr<double> nic = NicOf(type_name, cluster, profiles);
      if (!nic.ok()) return nic.status();
      out += StrCat("- {name: node-", number, ", devices: [{kind: ", type.kind,
                    ", count: ", type.count, "}]");
      if (*nic > 0)
        absl::StrAppendFormat(&out, ", uplink: {bandwidth: %.12g MB/s, latency: 0 s}", *nic / 1e6);
      out += "}\n";
    }
    std::map<HelixLink, int> times;
    for (const auto& [ends, link] : links_) ++times[link];
    if (times.empty()) return out;
    const HelixLink usual =
        std::max_element(times.begin(), times.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->first;
    const size_t pairs = nodes_.size() * (nodes_.size() - 1) / 2;
    size_t joined = 0;
    std::string others;
    for (const auto& [ends, link] : links_) {
      const bool both_ways = links_.contains({ends.second, ends.first});
      if (!both_ways || ends.first < ends.second) ++joined;
      if (link == usual) continue;
      absl::StrAppendFormat(&others, "- {from: node-%d, to: node-%d, link: %s%s}\n", ends.first,
                            ends.second, Show(link), both_ways ? ", one_way: true" : "");
    }
    if (joined < pairs) {
      out += StrCat("# ", pairs - joined, " of ", pairs,
                    " pairs of machines have no link there; they get this one.\n");
    }
    out += StrCat("tiers:\n  site: ", Show(usual), "\n");
    if (!others.empty()) out += "links:\n" + others;
    return out;
  }

  const std::string_view file_, profiles_file_;
  std::map<int, std::string> nodes_;  // type, by number
  std::map<std::pair<int, int>, HelixLink> links_;
};

}  // namespace

absl::StatusOr<std::string> ImportHelixCluster(std::string_view text, std::string_view file,
                                               std::string_view profiles,
                                               std::string_view profiles_file) {
  const absl::StatusOr<Sections> cluster = ReadIni(text, file);
  if (!cluster.ok()) return cluster.status();
  const absl::StatusOr<Sections> types = ReadIni(profiles, profiles_file);
  if (!types.ok()) return types.status();
  return Importer(file, profiles_file).Run(*cluster, *types);
}

}  // namespace tessera::deploy
