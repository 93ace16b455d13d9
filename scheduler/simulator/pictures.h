// Simulations as pictures: SVG that a browser shows, without scripts or fonts of its own.
//
// Thread rule: pure functions; the same input gives the same bytes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "scheduler/simulator/report.h"

namespace tessera::scheduler {

// Part of the requests that met their objectives over the rate at which they came; a line at
// `wanted_attainment`. `rests_on` stands below: what the figures rest on.
std::string AttainmentSvg(std::span<const RatePoint> points, double wanted_attainment,
                          std::string_view rests_on);

// For each replica, over time: sequences that run and wait, and the part of its KV in use. Needs
// samples (SimulationSetup::sample_seconds).
std::string TimelineSvg(const SimulationResult& result, std::string_view rests_on);

}  // namespace tessera::scheduler
