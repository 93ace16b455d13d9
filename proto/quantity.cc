#include "proto/quantity.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024.0;

constexpr std::array<Unit, 9> kByteUnits = {{{"B", 1},
                                             {"kB", 1e3},
                                             {"MB", 1e6},
                                             {"GB", 1e9},
                                             {"TB", 1e12},
                                             {"KiB", kKi},
                                             {"MiB", kKi* kKi},
                                             {"GiB", kKi* kKi* kKi},
                                             {"TiB", kKi* kKi* kKi* kKi}}};
constexpr std::array<Unit, 11> kRateUnits = {{{"B/s", 1},
                                              {"kB/s", 1e3},
                                              {"MB/s", 1e6},
                                              {"GB/s", 1e9},
                                              {"TB/s", 1e12},
                                              {"MiB/s", kKi* kKi},
                                              {"GiB/s", kKi* kKi* kKi},
                                              {"kbit/s", 1e3 / 8},
                                              {"Mbit/s", 1e6 / 8},
                                              {"Gbit/s", 1e9 / 8},
                                              {"Tbit/s", 1e12 / 8}}};
constexpr std::array<Unit, 6> kFlopUnits = {{{"GFLOPS", 1e9},
                                             {"TFLOPS", 1e12},
                                             {"PFLOPS", 1e15},
                                             {"GFLOP/s", 1e9},
                                             {"TFLOP/s", 1e12},
                                             {"PFLOP/s", 1e15}}};
constexpr std::array<Unit, 7> kSecondUnits = {{{"ns", 1e-9},
                                               {"us", 1e-6},
                                               {"\u00b5s", 1e-6},
                                               {"ms", 1e-3},
                                               {"s", 1},
                                               {"min", 60},
                                               {"h", 3600}}};
constexpr std::array<Unit, 2> kPriceUnits = {{{"USD/h", 1}, {"$/h", 1}}};
constexpr std::array<Unit, 1> kRatioUnits = {{{"%", 0.01}}};

struct Units {
  const Unit* begin;
  size_t count;
};

Units UnitsOf(Dimension dimension) {
  switch (dimension) {
    case Dimension::kBytes: return {kByteUnits.data(), kByteUnits.size()};
    case Dimension::kBytesPerSecond: return {kRateUnits.data(), kRateUnits.size()};
    case Dimension::kFlopsPerSecond: return {kFlopUnits.data(), kFlopUnits.size()};
    case Dimension::kSeconds: return {kSecondUnits.data(), kSecondUnits.size()};
    case Dimension::kUsdPerHour: return {kPriceUnits.data(), kPriceUnits.size()};
    case Dimension::kRatio: return {kRatioUnits.data(), kRatioUnits.size()};
  }
  return {nullptr, 0};
}

}  // namespace

std::string_view Example(Dimension dimension) {
  switch (dimension) {
    case Dimension::kBytes: return "80 GiB";
    case Dimension::kBytesPerSecond: return "25 GB/s";
    case Dimension::kFlopsPerSecond: return "155 TFLOPS";
    case Dimension::kSeconds: return "0.2 ms";
    case Dimension::kUsdPerHour: return "1.99 USD/h";
    case Dimension::kRatio: return "90 %";
  }
  return "";
}

double Highest(Dimension dimension) {
  switch (dimension) {
    case Dimension::kBytes: return 1e18;
    case Dimension::kBytesPerSecond: return 1e18;
    case Dimension::kFlopsPerSecond: return 1e21;
    case Dimension::kSeconds: return 1e10;
    case Dimension::kUsdPerHour: return 1e9;
    case Dimension::kRatio: return 1e9;
  }
  return 0;
}

absl::StatusOr<double> ParseQuantity(std::string_view text, Dimension dimension) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  const auto fail = [&](std::string_view reason, std::string_view example) {
    return absl::InvalidArgumentError(
        StrCat("\"", text, "\" ", reason, "; write for example \"", example, "\""));
  };
  const std::string_view example = Example(dimension);
  if (end == copy.c_str()) return fail("does not begin with a number", example);
  if (!std::isfinite(number) || number < 0)
    return fail("must be a finite number, not negative", example);
  std::string_view unit(end);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  while (!unit.empty() && unit.back() == ' ') unit.remove_suffix(1);
  if (unit.empty()) return fail("has no unit", example);
  const Units units = UnitsOf(dimension);
  for (size_t i = 0; i < units.count; ++i) {
    if (units.begin[i].name != unit) continue;
    const double value = number * units.begin[i].factor;
    return value <= Highest(dimension) ? absl::StatusOr<double>(value)
                                       : fail("is too large", example);
  }
  std::string known, lower(unit);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool bits = lower.find("bit") != std::string::npos ||
                    lower.find("bps") != std::string::npos ||
                    unit.find("b/s") != std::string_view::npos;
  for (size_t i = 0; i < units.count; ++i) known += StrCat(i == 0 ? "" : ", ", units.begin[i].name);
  // Whoever thinks in bits is not to write bytes.
  return fail(StrCat("has the unknown unit \"", unit, "\" (known: ", known, ")"),
              dimension == Dimension::kBytesPerSecond && bits ? "25 Gbit/s" : example);
}

}  // namespace tessera
