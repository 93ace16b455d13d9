// Names of a plan's parts as people read them, the same in every output. Thread rule: pure
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

inline constexpr double kGib = 1073741824.0;

// "prefill and decode".
std::string RoleText(v1::ReplicaRole role);

// "1.60", "0.127", "240": as many digits as matter.
std::string UsdText(double usd);

// "25 Gbit/s", "2400 Gbit/s", "0.05 Gbit/s".
std::string GbitText(double bytes_per_second);

// "TTFT <= 500 ms, end to end <= 10 s"; "no limit".
std::string LimitsText(const v1::ServiceObjectives& objectives);

// Whether a plan for goodput attains less in the simulation than it promises, by more than luck.
bool SimulatedToAttainLess(const v1::DeploymentPlan& plan);

// "22.100 requests/s (simulated, 3 x 20000; predicted 23.000)": what every seed attains with so
// many requests;
// "up to 23.000 requests/s (predicted)" where nothing was simulated so.
std::string HeadlineRate(const v1::DeploymentPlan& plan);
// The same in tokens, to be appended: ", 590 output tokens/s"; empty: answers have no lengths.
std::string HeadlineTokens(const v1::DeploymentPlan& plan);

// "TTFT 0.8 s, TPOT 62 ms (means at 2.4 requests/s, simulated); p99 3.1 s and 80 ms".
std::string LatencyText(const v1::DeploymentPlan& plan);

// A warning where other work was planned than more than a hundredth of the requests will bring;
// else empty.
std::string CutText(const v1::DeploymentPlan& plan);

// "by simulation: 3.200", "3.000 after the loss of any one machine": the requests per second of the
// promised ones that are to be counted on; empty where these are all.
std::string CountedOnText(const v1::DeploymentPlan& plan);

// The change of a ratio to what is: "+4.8 %", or `same` where that rounds to nothing.
std::string ChangeText(double ratio, const char* same = "unchanged");

// "a/0..3 A6000"; "a/0,a/2..3 A6000" where numbers are missing; machines apart by commas.
std::string StageDevicesText(const v1::Stage& stage);

// Whether devices of the stage hold unlike parts of its layers.
bool IsMixed(const v1::Stage& stage);
// "a/0 (RTX4090) 62 % + a/1 (A6000) 38 %": the part of its layers that each holds.
std::string MixedStageText(const v1::Stage& stage);

// Devices of all stages in their order, without kinds: "a/0..3, b/0..1".
std::string ReplicaDevicesText(const v1::Replica& replica);

// The first line of a message.
std::string FirstLine(std::string_view text);

// What a reader must not miss: stands at the head.
bool IsWarning(const std::string& line);

// A heading and the lines below it, those at the head left out; nothing where there are none.
void AppendLines(const char* heading, const std::vector<std::string>& lines, std::string* out);

}  // namespace tessera::scheduler
