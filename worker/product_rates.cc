#include "worker/product_rates.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

#include "third_party/spdlog/log.h"

namespace tessera::worker {
namespace {

// The rest is for the choices of a model's products.
constexpr double kPartOfBudget = 0.5;

}  // namespace

std::vector<kernels::TuningTable::Rate> ProductRates(kernels::Device& device,
                                                     const kernels::ProbeOptions& probe,
                                                     kernels::TuningTable& table) {
  std::vector<kernels::TuningTable::Rate> rates = table.rates();
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const double before = table.seconds_left();
  const auto is_known = [&rates](std::string_view weights) {
    return std::any_of(rates.begin(), rates.end(),
                       [&](const auto& rate) { return rate.weights == weights; });
  };
  const auto measured = kernels::ProbeProducts(
      device, probe, {.max_seconds = kPartOfBudget * before, .is_known = is_known});
  // Choices that were measured on the way have taken their part themselves.
  const std::chrono::duration<double> passed = Clock::now() - begin;
  const double own = passed.count() - (before - table.seconds_left());
  if (!measured.ok()) {
    table.Spend(own);
    Logger("worker").warn("the rates of products cannot be measured: {}",
                          std::string(measured.status().message()));
    return rates;
  }
  if (measured->empty()) return rates;  // nothing was left, or no time for it
  table.Spend(own);
  for (const kernels::ProductRate& rate : *measured)
    rates.push_back({std::string(rate.weights), rate.rows, rate.read_bytes_per_second});
  table.set_rates(rates);
  if (absl::Status saved = table.Save(); !saved.ok())
    Logger("worker").warn("{}", std::string(saved.message()));
  return rates;
}

}  // namespace tessera::worker
