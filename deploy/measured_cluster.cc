#include "deploy/measured_cluster.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

// The part of the rate measured in linear ops that a whole prefill reaches: those ops take 95 % of
// its time (tests/bench/run cpu prints the parts), and short steps lose some.
constexpr double kPrefillEfficiency = 0.9;

// Devices of one machine that differ by less are one kind: a stage in tensor parallel is planned
// for devices of one kind.
constexpr double kSpread = 0.2;         // of rates
constexpr double kMemorySpread = 0.02;  // drivers keep some

struct Place {
  std::string machine;
  int index = 0;

  auto operator<=>(const Place&) const = default;
};

absl::StatusOr<Place> PlaceOf(const std::string& worker) {
  Place place;
  const size_t slash = worker.find('/');
  if (slash == std::string::npos || slash == 0 ||
      !absl::SimpleAtoi(worker.substr(slash + 1), &place.index) || place.index < 0) {
    return absl::InvalidArgumentError(
        StrCat("worker ", worker,
               " is not named MACHINE/INDEX, as a description names devices: "
               "start it with tessera-worker --name MACHINE/INDEX"));
  }
  place.machine = worker.substr(0, slash);
  return place;
}

// Alike devices of one machine that follow each other, with the least of what was measured on them.
struct Group {
  v1::ProfiledWorker least;  // named as the first
  int count = 1;
};

// By machine, in the order of their indices.
using Machines = std::map<std::string, std::vector<Group>>;

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// The kind of one group alone, because no two measure the same. Begins with the registered kind,
// which says whether it is a CPU.
std::string KindOf(const v1::ProfiledWorker& worker) {
  std::string name = StrCat(worker.device().kind(), "-", worker.name());
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

// Four digits, without an exponent.
std::string Figure(double value) {
  return value < 1e4 ? absl::StrFormat("%.4g", value) : absl::StrFormat("%.0f", value);
}

std::string Bandwidth(double bytes_per_second) {
  return bytes_per_second < 1e9 ? StrCat(Figure(bytes_per_second / 1e6), " MB/s")
                                : StrCat(Figure(bytes_per_second / 1e9), " GB/s");
}

std::string Link(double bytes_per_second, double latency_seconds) {
  return absl::StrFormat("{bandwidth: %s, latency: %s us}", Bandwidth(bytes_per_second),
                         Figure(1e6 * latency_seconds));
}

std::string Flops(double flops_per_second) {
  return StrCat(Figure(flops_per_second / 1e9), " GFLOPS");
}

absl::Status CheckAboveZero(double value, std::string_view what, std::string_view where) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("the ", what, " of ", where, " was measured as ", value, "; measure again"));
}

absl::Status CheckRates(const v1::ProfileClusterReply& measured) {
  for (const v1::ProfiledWorker& worker : measured.workers()) {
    const std::pair<double, const char*> figures[] = {
        {static_cast<double>(worker.device().memory_bytes()), "memory"},
        {worker.rates().memory_read_bytes_per_second(), "memory bandwidth"},
        {worker.rates().bfloat16_flops_per_second(), "bfloat16 rate"}};
    for (const auto& [value, what] : figures) {
      absl::Status status = CheckAboveZero(value, what, StrCat("worker ", worker.name()));
      if (!status.ok()) return status;
    }
  }
  for (const v1::ProfiledLink& link : measured.links()) {
    const v1::ProbeLinkReply& rates = link.measured();
    const double least = std::min(rates.sent_bytes_per_second(), rates.received_bytes_per_second());
    absl::Status status = CheckAboveZero(least, "bandwidth",
                                         StrCat("the link from ", link.from(), " to ", link.to()));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool Near(double a, double b, double tolerance) {
  return std::abs(a - b) <= tolerance * std::max(a, b);
}

bool Alike(const v1::ProfiledWorker& a, const v1::ProfiledWorker& b) {
  const auto near = [&](auto rate) {
    return Near((a.rates().*rate)(), (b.rates().*rate)(), kSpread);
  };
  return a.device().kind() == b.device().kind() && a.device().gpu_name() == b.device().gpu_name() &&
         a.rates().kernel_path() == b.rates().kernel_path() &&
         Near(static_cast<double>(a.device().memory_bytes()),
              static_cast<double>(b.device().memory_bytes()), kMemorySpread) &&
         near(&v1::ProfileReply::memory_read_bytes_per_second) &&
         near(&v1::ProfileReply::bfloat16_flops_per_second);
}

// Both measured the same products, or one of them had no room for some.
void LowerProducts(const v1::ProfileReply& rates, v1::ProfileReply* low) {
  for (v1::ProductRate& product : *low->mutable_products()) {
    for (const v1::ProductRate& other : rates.products()) {
      if (other.weights() != product.weights() || other.rows() != product.rows()) continue;
      product.set_read_bytes_per_second(
          std::min(product.read_bytes_per_second(), other.read_bytes_per_second()));
    }
  }
}

void Lower(const v1::ProfiledWorker& worker, v1::ProfiledWorker* least) {
  const v1::ProfileReply& rates = worker.rates();
  v1::ProfileReply& low = *least->mutable_rates();
  low.set_memory_read_bytes_per_second(
      std::min(low.memory_read_bytes_per_second(), rates.memory_read_bytes_per_second()));
  low.set_kv_codec_bytes_per_second(
      std::min(low.kv_codec_bytes_per_second(), rates.kv_codec_bytes_per_second()));
  low.set_float32_flops_per_second(
      std::min(low.float32_flops_per_second(), rates.float32_flops_per_second()));
  low.set_bfloat16_flops_per_second(
      std::min(low.bfloat16_flops_per_second(), rates.bfloat16_flops_per_second()));
  low.set_int8_flops_per_second(
      std::min(low.int8_flops_per_second(), rates.int8_flops_per_second()));
  LowerProducts(rates, &low);
  least->mutable_device()->set_memory_bytes(
      std::min(least->device().memory_bytes(), worker.device().memory_bytes()));
}

// `measured` passed CheckCanDescribe.
Machines GroupsOf(const v1::ProfileClusterReply& measured) {
  std::map<Place, const v1::ProfiledWorker*> sorted;
  for (const v1::ProfiledWorker& worker : measured.workers())
    sorted[*PlaceOf(worker.name())] = &worker;
  Machines machines;
  const v1::ProfiledWorker* first = nullptr;  // of the group
  for (const auto& [place, worker] : sorted) {
    std::vector<Group>& groups = machines[place.machine];
    if (groups.empty() || !Alike(*first, *worker)) {
      groups.push_back({.least = *worker});
      first = worker;
      continue;
    }
    Lower(*worker, &groups.back().least);
    ++groups.back().count;
  }
  return machines;
}

// The products of a profile, from the comma before on; empty: none was measured.
std::string ProductsText(const v1::ProfileReply& rates) {
  std::string text;
  for (const v1::ProductRate& product : rates.products()) {
    absl::StrAppendFormat(&text, "%s\n      {weights: %s, rows: %d, read: %s}",
                          text.empty() ? "" : ",", product.weights(), product.rows(),
                          Bandwidth(product.read_bytes_per_second()));
  }
  return text.empty() ? "" : StrCat(", products: [", text, "]");
}

void AppendMachine(const std::string& machine, const std::vector<Group>& groups,
                   const v1::ProfiledLink* inside, std::string_view measured_on,
                   std::string* text) {
  absl::StrAppendFormat(text, "- name: %s\n  devices:\n", Quoted(machine));
  for (const Group& group : groups) {
    const v1::ProfileReply& rates = group.least.rates();
    const double codec = rates.kv_codec_bytes_per_second();
    absl::StrAppendFormat(
        text,
        "  - {kind: %s, %sprofile: {memory_read: %s, prefill_efficiency: %s, "
        "%smeasured_on: \"%s\"%s}}\n",
        Quoted(KindOf(group.least)), group.count > 1 ? StrCat("count: ", group.count, ", ") : "",
        Bandwidth(rates.memory_read_bytes_per_second()), Figure(kPrefillEfficiency),
        codec > 0 ? StrCat("kv_codec: ", Bandwidth(codec), ", ") : "", measured_on,
        ProductsText(rates));
  }
  if (inside == nullptr) return;
  const v1::ProbeLinkReply& rates = inside->measured();
  absl::StrAppendFormat(
      text, "  inside: %s  # %s to %s, over %s\n",
      Link(std::min(rates.sent_bytes_per_second(), rates.received_bytes_per_second()),
           rates.latency_seconds()),
      inside->from(), inside->to(), rates.transport());
}

void AppendKind(const Group& group, std::string* text) {
  const v1::ProfiledWorker& worker = group.least;
  const v1::ProfileReply& rates = worker.rates();
  // Rounded down: never more than the worker has.
  const double mebibytes =
      std::floor(10.0 * static_cast<double>(worker.device().memory_bytes()) / (1 << 20)) / 10;
  absl::StrAppendFormat(
      text,
      "- name: %s\n"
      "  # %s, kernels %s.\n"
      "  memory: %.1f MiB  # of %s\n"
      "  memory_bandwidth: %s  # reading\n"
      "  # Linear ops: float32 %s, bfloat16 %s, int8 %s.\n"
      "  dense_flops_per_second: %s  # bfloat16\n"
      "  source: \"tessera profile\"\n",
      Quoted(KindOf(worker)), rates.device(), rates.kernel_path(), mebibytes,
      group.count > 1
          ? absl::StrFormat("each of %d workers, as all figures here the lowest", group.count)
          : "this worker",
      Bandwidth(rates.memory_read_bytes_per_second()), Flops(rates.float32_flops_per_second()),
      Flops(rates.bfloat16_flops_per_second()), Flops(rates.int8_flops_per_second()),
      Flops(rates.bfloat16_flops_per_second()));
}

void AppendPair(const std::string& from, const std::string& to, double bytes_per_second,
                const v1::ProbeLinkReply& rates, std::string* text) {
  absl::StrAppendFormat(text, "- {from: %s, to: %s, one_way: true, link: %s}  # over %s\n",
                        Quoted(from), Quoted(to), Link(bytes_per_second, rates.latency_seconds()),
                        rates.transport());
}

}  // namespace

absl::Status CheckCanDescribe(const std::vector<std::string>& workers) {
  std::map<std::string, std::vector<int>> machines;
  for (const std::string& worker : workers) {
    const absl::StatusOr<Place> place = PlaceOf(worker);
    if (!place.ok()) return place.status();
    machines[place->machine].push_back(place->index);
  }
  for (auto& [machine, indices] : machines) {
    std::sort(indices.begin(), indices.end());
    for (int i = 0; i < static_cast<int>(indices.size()); ++i) {
      if (indices[static_cast<size_t>(i)] == i) continue;
      return absl::InvalidArgumentError(
          StrCat("worker ", machine, "/", i,
                 " is missing: a description counts the devices of "
                 "machine ",
                 machine,
                 " from 0 without gaps; start that worker, or name the others "
                 "so"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DescribeMeasured(const v1::ProfileClusterReply& measured,
                                             std::string_view measured_on,
                                             std::string_view measured_at) {
  std::vector<std::string> names;
  for (const v1::ProfiledWorker& worker : measured.workers()) names.push_back(worker.name());
  if (absl::Status s = CheckCanDescribe(names); !s.ok()) return s;
  if (absl::Status s = CheckRates(measured); !s.ok()) return s;
  const Machines machines = GroupsOf(measured);
  std::map<std::string, const v1::ProfiledLink*> inside;
  std::string links;
  for (const v1::ProfiledLink& link : measured.links()) {
    const absl::StatusOr<Place> from = PlaceOf(link.from()), to = PlaceOf(link.to());
    if (!from.ok()) return from.status();
    if (!to.ok()) return to.status();
    if (from->machine == to->machine) {
      inside[from->machine] = &link;
      continue;
    }
    const v1::ProbeLinkReply& rates = link.measured();
    AppendPair(from->machine, to->machine, rates.sent_bytes_per_second(), rates, &links);
    AppendPair(to->machine, from->machine, rates.received_bytes_per_second(), rates, &links);
  }
  std::string text = StrCat(
      "# A cluster description, measured by `tessera profile` at ", measured_at,
      ".\n"
      "# Every worker measured its device, those of one machine at the same time, as they "
      "serve:\n"
      "# how fast all its cores read memory, and multiply in linear ops, and a whole prefill "
      "is taken\n"
      "# to reach prefill_efficiency of that rate; and how fast each type of weights is read in "
      "products with\n"
      "# one row and with more. Then pairs of workers sent each other frames of "
      "up to 4 MiB\n"
      "# (bandwidth) and of 4 KiB (latency, one way), over the links that serve replicas.\n"
      "#   tessera plan FILE --model MODEL\n"
      "#   tessera-coordinator MODEL --cluster FILE\n"
      "# Quantities are written with their unit; bandwidth is per direction.\n"
      "machines:\n");
  for (const auto& [machine, groups] : machines) {
    const auto link = inside.find(machine);
    AppendMachine(machine, groups, link == inside.end() ? nullptr : link->second, measured_on,
                  &text);
  }
  if (!links.empty()) text += StrCat("links:\n", links);
  text += "kinds:\n";
  for (const auto& [machine, groups] : machines) {
    for (const Group& group : groups) AppendKind(group, &text);
  }
  return text;
}

}  // namespace tessera::deploy
