#include "kernels/cuda/emulation/schedule.h"

#include <iterator>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::emulated {
namespace {

constexpr Schedule kExtremes[] = {
    {.copies = CopyLanding::kAtWait},
    {.lanes = Order::kDescending,
     .warps = Order::kDescending,
     .blocks = Order::kDescending,
     .copies = CopyLanding::kAtIssue},
    {.warps = Order::kDescending, .copies = CopyLanding::kAtIssue},
    {.lanes = Order::kDescending, .blocks = Order::kDescending, .copies = CopyLanding::kAtWait},
};

const char* Name(Order order) {
  switch (order) {
    case Order::kAscending: return "ascending";
    case Order::kDescending: return "descending";
    case Order::kRandom: return "random";
  }
  return "";
}

const char* Name(CopyLanding copies) {
  switch (copies) {
    case CopyLanding::kAtIssue: return "when issued";
    case CopyLanding::kAtWait: return "at their wait";
    case CopyLanding::kRandom: return "at random";
  }
  return "";
}

}  // namespace

Schedule ScheduleFromSeed(uint64_t seed) {
  if (seed < std::size(kExtremes)) return kExtremes[seed];
  ScheduleRandom random(seed);
  Schedule schedule;
  schedule.lanes = static_cast<Order>(random.Below(3));
  schedule.warps = static_cast<Order>(random.Below(3));
  schedule.blocks = static_cast<Order>(random.Below(3));
  schedule.copies = static_cast<CopyLanding>(random.Below(3));
  schedule.seed = seed;
  return schedule;
}

std::string Describe(const Schedule& schedule) {
  return StrCat("lanes ", Name(schedule.lanes), ", warps ", Name(schedule.warps), ", blocks ",
                Name(schedule.blocks), ", copies land ", Name(schedule.copies), ", seed ",
                schedule.seed);
}

}  // namespace tessera::kernels::cuda::emulated
