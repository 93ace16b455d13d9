#include "worker/formation/stage_group.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/collectives/shm_group.h"
#include "kernels/collectives/socket_group.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/formation/formation_frames.h"

namespace tessera::worker {
namespace {

using GroupOrStatus = absl::StatusOr<std::unique_ptr<kernels::Group>>;
using Links = std::vector<std::shared_ptr<kernels::Link>>;

// Ranks wait for rank 0 of their stage, which waits for the stage before.
constexpr kernels::GroupOptions kOptions = {.timeout_seconds = 600};
// All ranks are there by then.
constexpr double kDeviceJoinSeconds = 60;

absl::Status SendText(kernels::Link& link, FrameType type, const std::string& text) {
  return link.Send(static_cast<uint16_t>(type),
                   {reinterpret_cast<const std::byte*>(text.data()), text.size()}, kSendSeconds);
}

absl::Status AwaitText(kernels::Link* link, FrameType type, std::string* text, double wait_seconds,
                       const std::function<bool()>& cancelled) {
  const auto came = AwaitFrame(link, wait_seconds, cancelled, text);
  return came.ok() ? CheckFrame(*link, type, *came) : came.status();
}

std::string TextOf(const kernels::GroupMaker* maker) {
  return maker == nullptr ? "" : maker->device_id() + "\n" + maker->library();
}

RankDevice DeviceOf(const std::string& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  return {text.substr(0, end), text.substr(std::min(end + 1, text.size()))};
}

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

// Rank 0's part. Null: the ranks are to sum on the host.
GroupOrStatus TryDevices(const Links& links, kernels::GroupMaker* maker, double wait_seconds,
                         const std::function<bool()>& cancelled) {
  const auto id = maker->NewId();
  if (!id.ok()) {
    Logger("worker").warn("{}", std::string(id.status().message()));
    return nullptr;
  }
  absl::Status status = SendToAll(links, FrameType::kSumOnDevices, *id);
  if (!status.ok()) return status;
  GroupOrStatus group = OnDevices(0, links.size(), *id, maker, cancelled);
  std::string error(group.status().message());
  for (size_t rank = 1; rank < links.size(); ++rank) {
    std::string of_rank;
    status =
        AwaitText(links[rank].get(), FrameType::kDevicesJoined, &of_rank, wait_seconds, cancelled);
    if (!status.ok()) return status;
    if (error.empty() && !of_rank.empty()) error = StrCat("rank ", rank, ": ", of_rank);
  }
  if (error.empty()) {
    status = SendToAll(links, FrameType::kSumOnDevices);
    return status.ok() ? std::move(group) : GroupOrStatus(status);
  }
  Logger("worker").warn("the ranks' devices do not join, so values go through the host: {}", error);
  return nullptr;
}

GroupOrStatus OpenAsRank0(Links links, kernels::GroupMaker* maker, double wait_seconds,
                          const std::function<bool()>& cancelled) {
  std::vector<RankDevice> devices = {DeviceOf(TextOf(maker))};
  bool shares_memory = true, has_devices = maker != nullptr;
  for (size_t rank = 1; rank < links.size(); ++rank) {
    std::string text;
    absl::Status status =
        AwaitText(links[rank].get(), FrameType::kRankDevice, &text, wait_seconds, cancelled);
    if (!status.ok()) return status;
    shares_memory &= links[rank]->is_unix();
    has_devices |= !devices.emplace_back(DeviceOf(text)).device_id.empty();
  }
  const std::string why_host = WhyThroughHost(devices);
  if (why_host.empty()) {
    GroupOrStatus group = TryDevices(links, maker, wait_seconds, cancelled);
    if (!group.ok() || *group != nullptr) return group;
  } else if (has_devices) {
    Logger("worker").info("values of {} ranks go through the host: {}", links.size(), why_host);
  }
  absl::Status sent =
      SendToAll(links, shares_memory ? FrameType::kSumInSharedMemory : FrameType::kSumOverLinks);
  return sent.ok() ? OnHost(0, std::move(links), shares_memory) : GroupOrStatus(sent);
}

GroupOrStatus OpenAsOther(int rank, Links links, kernels::GroupMaker* maker, double wait_seconds,
                          const std::function<bool()>& cancelled) {
  kernels::Link* const first = links[0].get();
  absl::Status status = SendText(*first, FrameType::kRankDevice, TextOf(maker));
  if (!status.ok()) return status;
  constexpr auto kOnDevices = static_cast<uint16_t>(FrameType::kSumOnDevices);
  std::string id;
  auto type = AwaitFrame(first, wait_seconds, cancelled, &id);
  if (type.ok() && *type == kOnDevices) {
    GroupOrStatus group = OnDevices(rank, links.size(), id, maker, cancelled);
    status = SendText(*first, FrameType::kDevicesJoined, std::string(group.status().message()));
    if (!status.ok()) return status;
    type = AwaitFrame(first, wait_seconds, cancelled);
    if (type.ok() && *type == kOnDevices) return group;
  }
  if (!type.ok()) return type.status();
  return OnHost(rank, std::move(links),
                *type == static_cast<uint16_t>(FrameType::kSumInSharedMemory));
}

}  // namespace

std::string WhyThroughHost(const std::vector<RankDevice>& devices) {
  std::map<std::string, size_t> ranks;  // by device
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const RankDevice& device = devices[rank];
    if (device.device_id.empty()) return StrCat("rank ", rank, " has no NCCL");
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

GroupOrStatus OpenStageGroup(int rank, Links links, kernels::GroupMaker* maker, double wait_seconds,
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
  return rank == 0 ? OpenAsRank0(std::move(links), maker, wait_seconds, cancelled)
                   : OpenAsOther(rank, std::move(links), maker, wait_seconds, cancelled);
}

}  // namespace tessera::worker
