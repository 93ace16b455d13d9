// Names of a plan's parts as people read them, the same in every output. Thread rule: pure
// functions.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <string>
#include <string_view>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

inline constexpr double kGib = 1073741824.0;

// "prefill and decode".
std::string RoleText(v1::ReplicaRole role);

// "1.60", "0.127", "240": as many digits as matter.
std::string UsdText(double usd);

// "25 Gbit/s", "2400 Gbit/s", "0.05 Gbit/s".
std::string GbitText(double bytes_per_second);

// "ESTIMATED, not measured: efficiencies of A40, L4; links inside 2 machines": what of the plan's
// assumptions is so marked; empty where nothing is.
std::string EstimatesText(const v1::DeploymentPlan& plan);

// Whether a plan for goodput attains less in the simulation than it promises, by more than luck.
bool SimulatedToAttainLess(const v1::DeploymentPlan& plan);

// "22.100 requests/s (simulated, 3 x 20000 requests; predicted 23.000)": what every seed attains;
// "up to 23.000 requests/s (predicted)" where nothing was simulated so.
std::string HeadlineRate(const v1::DeploymentPlan& plan);

// "by simulation: 3.200", "3.000 after the loss of any one machine": the requests per second of the
// promised ones that are to be counted on; empty where these are all.
std::string CountedOnText(const v1::DeploymentPlan& plan);

// Whether some price that the plan may rest on is the catalogue's.
bool PricesEstimated(const v1::DeploymentPlan& plan);

// Of a ratio to what is: "+4.8 %", or `same` where that rounds to nothing.
std::string ChangeText(double ratio, const char* same = "unchanged");

// "a/0..3 A6000"; "a/0,a/2..3 A6000" where numbers are missing; machines apart by commas.
std::string StageDevicesText(const v1::Stage& stage);

// Of all stages in their order, without kinds: "a/0..3, b/0..1".
std::string ReplicaDevicesText(const v1::Replica& replica);

// Of a message.
std::string FirstLine(std::string_view text);

// What a reader must not miss: stands at the head.
bool IsWarning(const std::string& line);

// A heading and the lines below it, those at the head left out; nothing where there are none.
void AppendLines(const char* heading, const google::protobuf::RepeatedPtrField<std::string>& lines,
                 std::string* out);

// What else is told of a plan: other choices, assumptions that are off, more devices and links.
void AppendOutlook(const v1::DeploymentPlan& plan, std::string* out);

}  // namespace tessera::scheduler
