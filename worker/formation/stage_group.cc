#include "worker/formation/stage_group.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "kernels/collectives/shm_group.h"
#include "kernels/collectives/socket_group.h"
#include "kernels/links/shared_memory.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/formation/formation_frames.h"

namespace tessera::worker {
namespace {

using GroupOrStatus = absl::StatusOr<std::unique_ptr<kernels::Group>>;
using SumsOrStatus = absl::StatusOr<std::unique_ptr<kernels::DeviceSums>>;
using Links = std::vector<std::shared_ptr<kernels::Link>>;

// Ranks wait for rank 0 of their stage, which waits for the stage before.
constexpr kernels::GroupOptions kOptions = {.timeout_seconds = 600};
// All ranks are there by then.
constexpr double kDeviceJoinSeconds = 60;
// What rank 0's last word on the group holds where ranks map memory for their sums.
constexpr std::string_view kMapsSums = "sums are mapped";

absl::Status SendToAll(const Links& links, FrameType type, const std::string& payload = "") {
  for (const auto& link : links) {
    if (link == nullptr) continue;
    if (absl::Status sent = SendText(*link, type, payload); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

GroupOrStatus OnHost(int rank, Links links, bool shares_memory) {
  return shares_memory ? kernels::CreateShmGroup(rank, std::move(links), {.group = kOptions})
                       : kernels::CreateSocketGroup(rank, std::move(links), kOptions);
}

GroupOrStatus OnDevices(int rank, size_t size, const std::string& id, kernels::GroupMaker* maker,
                        const std::function<bool()>& cancelled) {
  if (maker == nullptr) return absl::FailedPreconditionError("this rank's device joins no others");
  return maker->Join(rank, static_cast<int>(size), id, kOptions, kDeviceJoinSeconds, cancelled);
}

// What the other ranks say of what each has tried to join or map: the first reason why not, of
// `own`, rank 0's, too; empty: all could.
absl::StatusOr<std::string> FirstReason(const Links& links, const absl::Status& own, FrameType type,
                                        double wait_seconds,
                                        const std::function<bool()>& cancelled) {
  std::string reason(own.message());
  for (size_t rank = 1; rank < links.size(); ++rank) {
    std::string of_rank;
    absl::Status status = AwaitText(links[rank].get(), type, &of_rank, wait_seconds, cancelled);
    if (!status.ok()) return status;
    if (reason.empty() && !of_rank.empty()) reason = StrCat("rank ", rank, ": ", of_rank);
  }
  return reason;
}

// Rank 0's part. Null: the ranks are to sum on the host.
GroupOrStatus TryDevices(const Links& links, kernels::GroupMaker* maker, const std::string& sums,
                         double wait_seconds, const std::function<bool()>& cancelled) {
  const auto id = maker->NewId();
  if (!id.ok()) {
    Logger("worker").warn("{}", std::string(id.status().message()));
    return nullptr;
  }
  absl::Status status = SendToAll(links, FrameType::kSumOnDevices, *id);
  if (!status.ok()) return status;
  GroupOrStatus group = OnDevices(0, links.size(), *id, maker, cancelled);
  const auto reason =
      FirstReason(links, group.status(), FrameType::kDevicesJoined, wait_seconds, cancelled);
  if (!reason.ok()) return reason.status();
  if (reason->empty()) {
    status = SendToAll(links, FrameType::kSumOnDevices, sums);
    return status.ok() ? std::move(group) : GroupOrStatus(status);
  }
  Logger("worker").warn("the ranks' devices do not join, so values go through the host: {}",
                        *reason);
  return nullptr;
}

SumsOrStatus MapSums(int rank, const Links& links, absl::StatusOr<kernels::SharedMemory> memory,
                     kernels::GroupMaker* maker) {
  if (!memory.ok()) return memory.status();
  return maker->MapSums(rank, static_cast<int>(links.size()), std::move(memory->memory), kOptions);
}

// Rank 0's part. Null: the group sums everything.
SumsOrStatus ShareSums(const Links& links, kernels::GroupMaker* maker, double wait_seconds,
                       const std::function<bool()>& cancelled) {
  // Without memory the others wait for it in vain, so that this is an error of the formation.
  auto memory = kernels::CreateSharedMemory(maker->SumsMemoryBytes(static_cast<int>(links.size())));
  if (!memory.ok()) return memory.status();
  for (const auto& link : links) {
    if (link == nullptr) continue;
    absl::Status sent = link->SendDescriptor(memory->file.get(), kSendSeconds);
    if (!sent.ok()) return sent;
  }
  SumsOrStatus sums = MapSums(0, links, std::move(memory), maker);
  const auto reason =
      FirstReason(links, sums.status(), FrameType::kSumsMapped, wait_seconds, cancelled);
  if (!reason.ok()) return reason.status();
  absl::Status status = SendToAll(links, FrameType::kSumsMapped, *reason);
  if (!status.ok()) return status;
  if (reason->empty()) return sums;
  Logger("worker").warn("the ranks' devices map no memory for their sums: {}", *reason);
  return nullptr;
}

SumsOrStatus TakeSums(int rank, const Links& links, kernels::GroupMaker* maker, double wait_seconds,
                      const std::function<bool()>& cancelled) {
  kernels::Link* const first = links[0].get();
  if (maker == nullptr) return absl::FailedPreconditionError("this rank's device maps no memory");
  auto memory = kernels::ReceiveSharedMemory(
      *first, maker->SumsMemoryBytes(static_cast<int>(links.size())), kSendSeconds);
  SumsOrStatus sums = MapSums(rank, links, std::move(memory), maker);
  absl::Status status =
      SendText(*first, FrameType::kSumsMapped, std::string(sums.status().message()));
  std::string reason;
  if (status.ok()) {
    status = AwaitText(first, FrameType::kSumsMapped, &reason, wait_seconds, cancelled);
  }
  if (!status.ok()) return status;
  if (reason.empty()) return sums;
  return nullptr;
}

// Both, or what failed.
absl::StatusOr<StageGroup> Together(GroupOrStatus group, SumsOrStatus sums) {
  if (!group.ok()) return group.status();
  if (!sums.ok()) return sums.status();
  return StageGroup{*std::move(group), *std::move(sums)};
}

// Why ranks with these devices and links make no sums in memory.
std::string WhyNoSums(const std::vector<RankDevice>& devices, bool shares_memory) {
  return shares_memory ? WhyNotMapped(devices) : "they are on several machines";
}

absl::StatusOr<StageGroup> OpenAsRank0(const Links& links, kernels::GroupMaker* maker,
                                       double wait_seconds,
                                       const std::function<bool()>& cancelled) {
  std::vector<RankDevice> devices = {DeviceOf(TextOf(maker))};
  bool shares_memory = true;
  for (size_t rank = 1; rank < links.size(); ++rank) {
    std::string text;
    absl::Status status =
        AwaitText(links[rank].get(), FrameType::kRankDevice, &text, wait_seconds, cancelled);
    if (!status.ok()) return status;
    shares_memory &= links[rank]->is_unix();
    devices.push_back(DeviceOf(text));
  }
  const auto any = [&devices](std::string RankDevice::*what) {
    return std::any_of(devices.begin(), devices.end(),
                       [what](const RankDevice& device) { return !(device.*what).empty(); });
  };
  const std::string why_not_mapped = WhyNoSums(devices, shares_memory);
  const std::string maps(why_not_mapped.empty() ? kMapsSums : "");
  if (maps.empty() && any(&RankDevice::sums_kind)) {
    Logger("worker").info("devices of {} ranks make no sums in memory that they map: {}",
                          links.size(), why_not_mapped);
  }
  const std::string why_host = WhyThroughHost(devices);
  GroupOrStatus group = nullptr;
  if (why_host.empty()) {
    group = TryDevices(links, maker, maps, wait_seconds, cancelled);
  } else if (any(&RankDevice::library)) {
    Logger("worker").info("values of {} ranks go through the host: {}", links.size(), why_host);
  }
  if (group.ok() && *group == nullptr) {
    absl::Status sent = SendToAll(
        links, shares_memory ? FrameType::kSumInSharedMemory : FrameType::kSumOverLinks, maps);
    group = sent.ok() ? OnHost(0, links, shares_memory) : GroupOrStatus(sent);
  }
  if (!group.ok() || maps.empty()) return Together(std::move(group), nullptr);
  return Together(std::move(group), ShareSums(links, maker, wait_seconds, cancelled));
}

absl::StatusOr<StageGroup> OpenAsOther(int rank, const Links& links, kernels::GroupMaker* maker,
                                       double wait_seconds,
                                       const std::function<bool()>& cancelled) {
  kernels::Link* const first = links[0].get();
  absl::Status status = SendText(*first, FrameType::kRankDevice, TextOf(maker));
  if (!status.ok()) return status;
  constexpr auto kOnDevices = static_cast<uint16_t>(FrameType::kSumOnDevices);
  std::string said;
  GroupOrStatus group = nullptr;
  auto type = AwaitFrame(first, wait_seconds, cancelled, &said);
  if (type.ok() && *type == kOnDevices) {
    group = OnDevices(rank, links.size(), said, maker, cancelled);
    status = SendText(*first, FrameType::kDevicesJoined, std::string(group.status().message()));
    if (!status.ok()) return status;
    type = AwaitFrame(first, wait_seconds, cancelled, &said);
  }
  if (!type.ok()) return type.status();
  if (*type != kOnDevices) {
    group = OnHost(rank, links, *type == static_cast<uint16_t>(FrameType::kSumInSharedMemory));
  }
  if (!group.ok() || said != kMapsSums) return Together(std::move(group), nullptr);
  return Together(std::move(group), TakeSums(rank, links, maker, wait_seconds, cancelled));
}

std::string RankName(size_t rank) { return StrCat("rank ", rank); }

}  // namespace

std::string TextOf(const kernels::GroupMaker* maker) {
  if (maker == nullptr) return "";
  return maker->device_id() + "\n" + maker->library() + "\n" + maker->sums_kind();
}

RankDevice DeviceOf(const std::string& text) {
  std::array<std::string, 3> lines;
  size_t begin = 0;
  for (std::string& line : lines) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    line = text.substr(begin, end - begin);
    begin = std::min(end + 1, text.size());
  }
  return {lines[0], lines[1], lines[2]};
}

std::string WhyThroughHost(const std::vector<RankDevice>& devices) {
  std::map<std::string, size_t> ranks;  // by device
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const RankDevice& device = devices[rank];
    if (device.library.empty()) return StrCat("rank ", rank, " has no NCCL");
    const auto [other, added] = ranks.emplace(device.device_id, rank);
    if (!added) {
      return StrCat("ranks ", other->second, " and ", rank, " are on one GPU, ", device.device_id);
    }
    if (device.library != devices[0].library) {
      return StrCat("rank 0 has ", devices[0].library, ", rank ", rank, " ", device.library);
    }
  }
  return "";
}

std::string WhyNotMapped(const std::vector<RankDevice>& devices,
                         const std::function<std::string(size_t)>& name) {
  std::map<std::string, size_t> ranks;  // by device
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const RankDevice& device = devices[rank];
    if (device.sums_kind.empty()) return StrCat(name(rank), "'s device maps none");
    if (device.sums_kind != devices[0].sums_kind) {
      return StrCat(name(0), "'s way is ", devices[0].sums_kind, ", ", name(rank), "'s ",
                    device.sums_kind);
    }
    if (device.device_id.empty()) continue;
    // Two processes have one GPU by turns: a kernel that waits would keep the other from it.
    const auto [other, added] = ranks.emplace(device.device_id, rank);
    if (!added) {
      return StrCat(name(other->second), " and ", name(rank), " are on one GPU, ",
                    device.device_id);
    }
  }
  return "";
}

std::string WhyNotMapped(const std::vector<RankDevice>& devices) {
  return WhyNotMapped(devices, RankName);
}

absl::StatusOr<StageGroup> OpenStageGroup(int rank, Links links, kernels::GroupMaker* maker,
                                          double wait_seconds,
                                          const std::function<bool()>& cancelled) {
  const bool ruled_out = std::any_of(links.begin(), links.end(), [](const auto& link) {
    return link != nullptr && link->rules_out_nccl();
  });
  if (ruled_out && maker != nullptr) {
    Logger("worker").info(
        "ranks sum over their links: those are inside TLS, and NCCL is not (--nccl-plain lets it "
        "pass)");
    maker = nullptr;
  }
  return rank == 0 ? OpenAsRank0(links, maker, wait_seconds, cancelled)
                   : OpenAsOther(rank, links, maker, wait_seconds, cancelled);
}

}  // namespace tessera::worker
