#include "worker/formation/formation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "worker/formation/formation_frames.h"
#include "worker/formation/stage_group.h"

namespace tessera::worker {
namespace {

// 0: layers of a member keep no states, so that any number will do.
int64_t FewerSeats(int64_t one, int64_t other) {
  return one == 0 || other == 0 ? std::max(one, other) : std::min(one, other);
}

}  // namespace

std::string MemberName(const v1::ConfigureRequest& request, int member) {
  const v1::Peer& peer = request.peers(member);
  return StrCat(request.replica(), " stage ", peer.stage(), " rank ", peer.rank(), " (",
                peer.address(), ")");
}

absl::StatusOr<FormationPlace> PlaceOf(const v1::ConfigureRequest& request) {
  std::map<std::pair<int, int>, int> members;  // by stage and rank
  for (int i = 0; i < request.peers_size(); ++i) {
    const v1::Peer& peer = request.peers(i);
    if (!members.emplace(std::pair(peer.stage(), peer.rank()), i).second) {
      return absl::InvalidArgumentError(
          StrCat("peers: ", MemberName(request, i), " is listed twice"));
    }
  }
  const auto find = [&](int stage, int rank) {
    const auto it = members.find({stage, rank});
    return it == members.end() ? -1 : it->second;
  };
  const int stages = members.empty() ? 0 : members.rbegin()->first.first + 1;
  size_t counted = 0;
  FormationPlace place;
  for (int stage = 0; stage < stages; ++stage) {
    int rank = 0;
    for (; find(stage, rank) >= 0; ++rank) {
      ++counted;
      if (stage == request.stage()) place.ranks.push_back(find(stage, rank));
    }
    if (rank == 0)
      return absl::InvalidArgumentError(StrCat("peers: stage ", stage, " has no rank 0"));
  }
  place.self = find(request.stage(), request.rank());
  if (counted != members.size() || place.self < 0) {
    return absl::InvalidArgumentError(StrCat("peers do not describe a replica with a stage ",
                                             request.stage(), " rank ", request.rank(),
                                             ": ranks of a stage count from 0 without a gap"));
  }
  place.leader = find(0, 0);
  place.sampler = find(stages - 1, 0);
  if (request.rank() == 0) {
    place.previous = find(request.stage() - 1, 0);
    place.next = find(request.stage() + 1, 0);
  }
  for (int i = 0; i < request.peers_size(); ++i) {
    if (i != place.self && (place.self == place.leader || i == place.leader)) {
      place.control.push_back(i);
    }
    const bool sibling = request.peers(i).stage() == request.stage() && i != place.self;
    if (sibling || i == place.previous || i == place.next) place.bulk.push_back(i);
  }
  return place;
}

absl::StatusOr<std::unique_ptr<Formation>> Formation::Join(const v1::ConfigureRequest& request,
                                                           KvBlocks kv, const Opener& open,
                                                           const FormationTimes& times,
                                                           const std::function<bool()>& cancelled,
                                                           kernels::GroupMaker* maker) {
  auto place = PlaceOf(request);
  if (!place.ok()) return place.status();
  std::unique_ptr<Formation> formation(new Formation());
  formation->place_ = *std::move(place);
  formation->kv_ = kv;
  absl::Status status = formation->OpenLinks(request, open);
  if (status.ok() && formation->place_.ranks.size() > 1) {
    std::vector<std::shared_ptr<kernels::Link>> others;  // by rank; null for this one
    for (const int member : formation->place_.ranks) others.push_back(formation->bulk_[member]);
    auto group =
        OpenStageGroup(request.rank(), std::move(others), maker, times.join_seconds, cancelled);
    status = group.status();
    if (group.ok()) {
      formation->group_ = std::move(group->group);
      formation->sums_ = std::move(group->sums);
    }
  }
  if (status.ok()) status = formation->OpenHops(times.join_seconds, maker, cancelled);
  if (status.ok()) {
    const bool leads = formation->place_.self == formation->place_.leader;
    status = leads ? formation->AgreeAsLeader(request, times.join_seconds, cancelled)
                   : formation->AgreeAsMember(request, times.join_seconds, cancelled);
  }
  if (status.ok()) status = formation->BeginHeartbeats(request, open, times);
  if (status.ok()) return formation;
  formation->Shutdown(status);
  return status;
}

absl::Status Formation::OpenLinks(const v1::ConfigureRequest& request, const Opener& open) {
  control_.resize(request.peers_size());
  bulk_.resize(request.peers_size());
  const auto open_all = [&](const std::vector<int>& members, v1::LinkKind kind, auto* links) {
    for (const int member : members) {
      auto link = open(member, kind);
      if (!link.ok()) return link.status();
      (*links)[member] = *std::move(link);
      (*links)[member]->set_peer(MemberName(request, member));
    }
    return absl::OkStatus();
  };
  absl::Status status = open_all(place_.control, v1::LINK_KIND_CONTROL, &control_);
  return status.ok() ? open_all(place_.bulk, v1::LINK_KIND_BULK, &bulk_) : status;
}

absl::Status Formation::OpenHops(double wait_seconds, kernels::GroupMaker* maker,
                                 const std::function<bool()>& cancelled) {
  if (place_.leader == place_.sampler) return absl::OkStatus();
  HopLinks links;
  if (place_.self == place_.leader) {
    for (const int member : place_.control) links.members.push_back(control_[member].get());
    links.drawer = control_[place_.sampler].get();
  } else {
    links.leader = control_[place_.leader].get();
    links.draws = place_.self == place_.sampler;
  }
  if (place_.previous >= 0) links.previous = bulk_[place_.previous].get();
  if (place_.next >= 0) links.next = bulk_[place_.next].get();
  links.has_ranks = place_.ranks.size() > 1;
  links.sums = sums_.get();
  auto hops = StageHops::Open(links, maker, wait_seconds, cancelled);
  if (!hops.ok()) return hops.status();
  hops_ = *std::move(hops);
  return absl::OkStatus();
}

absl::Status Formation::AgreeAsLeader(const v1::ConfigureRequest& request, double wait_seconds,
                                      const std::function<bool()>& cancelled) {
  for (const int member : place_.control) {
    v1::MemberReady ready;
    const absl::Status status = AwaitMessage(control_[member].get(), FrameType::kMemberReady,
                                             &ready, wait_seconds, cancelled);
    if (!status.ok()) return status;
    if (ready.kv_blocks() < 1) {
      return absl::FailedPreconditionError(
          StrCat(MemberName(request, member), " has room for no KV block"));
    }
    if ((ready.window_blocks() > 0) != (kv_.window > 0)) {
      return absl::FailedPreconditionError(
          StrCat(MemberName(request, member), " has ", ready.window_blocks(),
                 " blocks of layers with a window, and the leader ", kv_.window,
                 ": all members keep windows apart, or none does"));
    }
    kv_.common = std::min<int64_t>(kv_.common, ready.kv_blocks());
    kv_.window = std::min<int64_t>(kv_.window, ready.window_blocks());
    if (kv_.seats == 0) kv_.snapshots = ready.snapshots();
    if (ready.seats() > 0) kv_.snapshots = std::min<int64_t>(kv_.snapshots, ready.snapshots());
    kv_.seats = FewerSeats(kv_.seats, ready.seats());
  }
  v1::FormationStart start;
  start.set_kv_blocks(static_cast<int32_t>(kv_.common));
  start.set_seats(static_cast<int32_t>(kv_.seats));
  start.set_window_blocks(static_cast<int32_t>(kv_.window));
  if (kv_.seats > 0) start.set_snapshots(static_cast<int32_t>(kv_.snapshots));
  for (const int member : place_.control) {
    const absl::Status sent =
        SendMessage(control_[member].get(), FrameType::kFormationStart, start);
    if (!sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status Formation::AgreeAsMember(const v1::ConfigureRequest& request, double wait_seconds,
                                      const std::function<bool()>& cancelled) {
  kernels::Link* leader = control_[place_.leader].get();
  v1::MemberReady ready;
  ready.set_kv_blocks(static_cast<int32_t>(kv_.common));
  ready.set_seats(static_cast<int32_t>(kv_.seats));
  ready.set_window_blocks(static_cast<int32_t>(kv_.window));
  ready.set_snapshots(static_cast<int32_t>(kv_.snapshots));
  absl::Status status = SendMessage(leader, FrameType::kMemberReady, ready);
  v1::FormationStart start;
  if (status.ok()) {
    status = AwaitMessage(leader, FrameType::kFormationStart, &start, wait_seconds, cancelled);
  }
  if (!status.ok()) return status;
  if (start.kv_blocks() < 1 || start.kv_blocks() > kv_.common) {
    return absl::InvalidArgumentError(StrCat(MemberName(request, place_.leader), " asks for ",
                                             start.kv_blocks(), " KV blocks of ", kv_.common));
  }
  if (kv_.seats > 0 && (start.seats() < 1 || start.seats() > kv_.seats)) {
    return absl::InvalidArgumentError(StrCat(MemberName(request, place_.leader), " asks for ",
                                             start.seats(), " seats of ", kv_.seats));
  }
  if (start.window_blocks() < std::min<int64_t>(1, kv_.window) ||
      start.window_blocks() > kv_.window) {
    return absl::InvalidArgumentError(StrCat(MemberName(request, place_.leader), " asks for ",
                                             start.window_blocks(),
                                             " blocks of layers with a window, of ", kv_.window));
  }
  if (kv_.seats > 0 && (start.snapshots() < 0 || start.snapshots() > kv_.snapshots)) {
    return absl::InvalidArgumentError(StrCat(MemberName(request, place_.leader), " asks for ",
                                             start.snapshots(), " states of prompts of ",
                                             kv_.snapshots));
  }
  kv_.common = start.kv_blocks();
  kv_.window = start.window_blocks();
  kv_.seats = start.seats();
  kv_.snapshots = start.snapshots();
  return absl::OkStatus();
}

absl::Status Formation::BeginHeartbeats(const v1::ConfigureRequest& request, const Opener& open,
                                        const FormationTimes& times) {
  auto monitor = kernels::LinkMonitor::Start({.ping_interval_seconds = times.ping_interval_seconds,
                                              .timeout_seconds = times.silence_seconds});
  if (!monitor.ok()) return monitor.status();
  monitor_ = *std::move(monitor);
  for (const int member : place_.control) {
    auto link = open(member, v1::LINK_KIND_HEARTBEAT);
    if (!link.ok()) return link.status();
    (*link)->set_peer(MemberName(request, member));
    heartbeats_.push_back(*std::move(link));
  }
  // Whoever is lost shuts them all down.
  for (const auto& link : heartbeats_)
    monitor_->Watch(link, {}, [this](const absl::Status& lost) { Shutdown(lost); });
  return absl::OkStatus();
}

Formation::~Formation() {
  monitor_.reset();
  // A group on devices ends in order while the others still answer.
  if (group_ != nullptr && group_->takes_device_memory()) group_.reset();
  Shutdown(absl::UnavailableError("the formation ends"));
}

StageLinks Formation::stage_links() const {
  StageLinks links;
  if (place_.previous >= 0) links.previous = bulk_[place_.previous].get();
  if (place_.next >= 0) links.next = bulk_[place_.next].get();
  links.group = group_.get();
  links.sums = sums_.get();
  links.has_other_stages = place_.leader != place_.sampler;
  links.hops = hops_.hops();
  return links;
}

std::vector<kernels::DeviceSums*> Formation::device_waits() const {
  std::vector<kernels::DeviceSums*> waits = hops_.pairs();
  if (sums_ != nullptr) waits.push_back(sums_.get());
  return waits;
}

std::vector<kernels::Link*> Formation::bulk() const {
  std::vector<kernels::Link*> links;
  for (const auto& link : bulk_) {
    if (link != nullptr) links.push_back(link.get());
  }
  if (place_.self != place_.leader) return links;
  for (const auto& link : heartbeats_) links.push_back(link.get());
  return links;
}

std::string Formation::DescribeSums() const {
  if (group_ == nullptr) return "";
  std::string way = group_->transport();
  if (!group_->takes_device_memory()) way = StrCat("their hosts (", way, ")");
  if (sums_ == nullptr) return way;
  return StrCat(sums_->transport(), ", up to ", sums_->max_bytes() >> 10, " KiB, above by ", way);
}

void Formation::Shutdown(const absl::Status& reason) {
  for (const auto* links : {&control_, &bulk_}) {
    for (const auto& link : *links) {
      if (link != nullptr) link->Shutdown(reason);
    }
  }
  if (place_.self == place_.leader) {
    for (const auto& link : heartbeats_) link->Shutdown(reason);
  }
  // They do not hear of their links.
  for (kernels::DeviceSums* wait : device_waits()) wait->Abort(reason);
  if (group_ != nullptr && group_->takes_device_memory()) group_->Abort(reason);
}

}  // namespace tessera::worker
