#include "worker/transfer/kv_link_mover.h"

#include <algorithm>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "worker/transfer/kv_transport.h"

namespace tessera::worker {
namespace {

v1::KvNote NoteOf(const KvKey& key) {
  v1::KvNote note;
  note.set_submission_id(key.first);
  note.set_attempt(key.second);
  return note;
}

absl::Status ToStatus(const v1::KvOutcome& outcome) {
  return absl::Status(static_cast<absl::StatusCode>(outcome.error_code()), outcome.error());
}

void ToProto(const IndexRange& range, v1::Range* out) {
  out->set_begin(range.begin);
  out->set_end(range.end);
}

}  // namespace

KvLinkMover::KvLinkMover(std::shared_ptr<KvLinkPort> port, KvPort::Replica replica)
    : port_(std::move(port)), replica_(std::move(replica)) {
  port_->SetListener(this);
  if (replica_.notes == nullptr) return;
  replica_.notes->SetListener([this](int peer, const v1::KvNote& note) { OnNote(peer, note); });
}

KvLinkMover::~KvLinkMover() {
  if (replica_.notes != nullptr) replica_.notes->SetListener(nullptr);
  port_->SetListener(nullptr);
  while (!coming_.empty()) Forget(coming_.begin()->first);
  while (!going_.empty()) Drop(going_.begin()->first);
}

void KvLinkMover::Expect(const KvPlace& place, const std::vector<kvcache::KvShare>& senders,
                         double lease_seconds) {
  const auto routes = Routes(senders, /*states=*/false);
  if (!routes.ok()) return listener_->OnKvExpected(place.key, routes.status());
  absl::StatusOr<std::vector<kvcache::KvRoute>> states = std::vector<kvcache::KvRoute>();
  if (place.exchange >= 0) states = Routes(senders, /*states=*/true);
  if (!states.ok()) return listener_->OnKvExpected(place.key, states.status());
  std::map<int, v1::KvRoom> rooms;  // by receiver
  {
    Coming coming;
    coming.target.set_first_token(static_cast<int32_t>(place.first));
    coming.target.set_codec(place.codec);
    coming.target.set_window_first_token(static_cast<int32_t>(place.window_first));
    const auto add = [&](const kvcache::KvRoute& route, bool of_states) {
      coming.routes[route.receiver].push_back(coming.target.routes_size());
      v1::KvRoute* added = coming.target.add_routes();
      added->set_sender(route.sender);
      v1::KvShare& part = *added->mutable_part();
      ToProto(route.layers, part.mutable_layers());
      ToProto(route.kv_heads, of_states ? part.mutable_key_groups() : part.mutable_kv_heads());
      *rooms[route.receiver].add_parts() = part;
      coming.unready.insert(route.receiver);
      coming.missing.insert(route.receiver);
    };
    for (const kvcache::KvRoute& route : *routes) add(route, false);
    for (const kvcache::KvRoute& route : *states) add(route, true);
    std::lock_guard lock(mutex_);
    coming_[place.key] = std::move(coming);
  }
  for (auto& [receiver, room] : rooms) {
    room.mutable_blocks()->Add(place.blocks.begin(), place.blocks.end());
    room.set_first_token(static_cast<int32_t>(place.first));
    room.set_end_token(static_cast<int32_t>(place.end));
    room.set_lease_seconds(lease_seconds);
    room.set_codec(place.codec);
    room.mutable_window_blocks()->Add(place.window_blocks.begin(), place.window_blocks.end());
    room.set_window_first_token(static_cast<int32_t>(place.window_first));
    room.set_seat(place.exchange);
    if (receiver == port_->self()) {
      OnReady(receiver, place.key, port_->OpenRoom(place.key, room));
    } else {
      v1::KvNote note = NoteOf(place.key);
      *note.mutable_room() = std::move(room);
      replica_.notes->Send(receiver, note);
    }
  }
}

absl::StatusOr<std::vector<kvcache::KvRoute>> KvLinkMover::Routes(
    const std::vector<kvcache::KvShare>& senders, bool states) const {
  const KvPortPools& pools = port_->pools();
  if (!pools.has_states()) return kvcache::RouteKv(senders, replica_.shares);
  // The shares of workers that hold any, and which they are.
  const auto holders = [&](const std::vector<kvcache::KvShare>& shares, std::vector<int>* who) {
    std::vector<kvcache::KvShare> held;
    for (size_t i = 0; i < shares.size(); ++i) {
      const IndexRange layers =
          KvPortPools::Count(states ? pools.state_layers : pools.kv_layers, shares[i].layers);
      const IndexRange& heads = states ? shares[i].key_groups : shares[i].kv_heads;
      if (layers.size() == 0 || heads.size() == 0) continue;
      held.push_back({layers, heads});
      who->push_back(static_cast<int>(i));
    }
    return held;
  };
  std::vector<int> sender, receiver;
  const auto from = holders(senders, &sender), to = holders(replica_.shares, &receiver);
  auto routes = kvcache::RouteKv(from, to);
  if (!routes.ok()) return routes;
  for (kvcache::KvRoute& route : *routes) {
    route.sender = sender[static_cast<size_t>(route.sender)];
    route.receiver = receiver[static_cast<size_t>(route.receiver)];
  }
  return routes;
}

void KvLinkMover::OnReady(int receiver, const KvKey& key,
                          const absl::StatusOr<v1::KvRoomReady>& ready) {
  absl::StatusOr<v1::KvTarget> target;
  {
    std::lock_guard lock(mutex_);
    const auto found = coming_.find(key);
    if (found == coming_.end() || found->second.unready.erase(receiver) == 0) return;
    Coming& coming = found->second;
    const std::vector<int>& routes = coming.routes[receiver];
    if (!ready.ok()) {
      target = ready.status();
    } else if (ready->tickets_size() != static_cast<int>(routes.size())) {
      target = absl::InternalError(StrCat("worker ", receiver, " of the replica gave ",
                                          ready->tickets_size(), " tickets for ", routes.size(),
                                          " parts"));
    } else {
      for (size_t i = 0; i < routes.size(); ++i) {
        v1::KvRoute* route = coming.target.mutable_routes(routes[i]);
        route->set_ticket(ready->tickets(static_cast<int>(i)));
        *route->mutable_addresses() = ready->addresses();
        route->set_incarnation(ready->incarnation());
      }
      if (!coming.unready.empty()) return;
      // Whoever has the first part's ticket knows the room.
      coming.target.set_ticket(coming.target.routes(0).ticket());
      target = coming.target;
    }
  }
  listener_->OnKvExpected(key, std::move(target));
}

void KvLinkMover::OnArrived(int receiver, const KvKey& key, const absl::Status& status) {
  bool expected = true;
  {
    std::lock_guard lock(mutex_);
    const auto found = coming_.find(key);
    if (found == coming_.end()) return;
    Coming& coming = found->second;
    if (status.ok()) {
      coming.missing.erase(receiver);
      if (!coming.missing.empty()) return;
      coming_.erase(found);
    } else {
      expected = coming.unready.empty();  // nobody was sent there yet
      coming.unready.clear();
    }
  }
  if (expected) {
    listener_->OnKvArrived(key, status);
  } else {
    listener_->OnKvExpected(key, status);
  }
}

void KvLinkMover::Forget(const KvKey& key) {
  std::map<int, std::vector<int>> routes;
  {
    std::lock_guard lock(mutex_);
    const auto found = coming_.find(key);
    if (found == coming_.end()) return;
    routes = std::move(found->second.routes);
    coming_.erase(found);
  }
  for (const auto& [receiver, mine] : routes) {
    if (receiver == port_->self()) {
      port_->CloseRoom(key);
    } else {
      v1::KvNote note = NoteOf(key);
      note.mutable_forget();
      replica_.notes->Send(receiver, note);
    }
  }
}

void KvLinkMover::Send(const KvKey& key, const v1::KvTarget& target) {
  Going going;
  for (const v1::KvRoute& route : target.routes()) going.senders.insert(route.sender());
  const auto workers = static_cast<int>(replica_.shares.size());
  if (going.senders.empty() || *going.senders.begin() < 0 || *going.senders.rbegin() >= workers) {
    return listener_->OnKvSent(
        key,
        absl::InvalidArgumentError(StrCat("kv_target has ", target.routes_size(),
                                          " routes, and not each from one of the replica's ",
                                          workers, " workers")),
        {});
  }
  going.missing = going.senders;
  std::lock_guard lock(mutex_);
  going_[key] = std::move(going);
}

void KvLinkMover::OnSent(int sender, const KvKey& key, const absl::Status& status,
                         const v1::KvTransfer& transfer) {
  v1::KvTransfer sum;
  {
    std::lock_guard lock(mutex_);
    const auto found = going_.find(key);
    if (found == going_.end()) return;
    Going& going = found->second;
    v1::KvTransfer& all = going.transfer;
    all.set_bytes(all.bytes() + transfer.bytes());
    all.set_seconds(std::max(all.seconds(), transfer.seconds()));
    all.set_transport(SlowerWay(all.transport(), transfer.transport()));
    all.set_codec(transfer.codec());
    sum = all;
    if (status.ok()) {
      going.missing.erase(sender);
      if (!going.missing.empty()) return;
      going_.erase(found);
    }
  }
  listener_->OnKvSent(key, status, sum);
}

void KvLinkMover::Drop(const KvKey& key) {
  std::set<int> senders;
  {
    std::lock_guard lock(mutex_);
    const auto found = going_.find(key);
    if (found == going_.end()) return;
    senders = std::move(found->second.senders);
    going_.erase(found);
  }
  for (const int sender : senders) {
    if (sender == port_->self()) {
      port_->Drop(key);
    } else {
      v1::KvNote note = NoteOf(key);
      note.mutable_drop();
      replica_.notes->Send(sender, note);
    }
  }
}

void KvLinkMover::OnNote(int peer, const v1::KvNote& note) {
  const KvKey key{note.submission_id(), note.attempt()};
  switch (note.what_case()) {
    case v1::KvNote::kRoomReady: return OnReady(peer, key, note.room_ready());
    case v1::KvNote::kArrived: return OnArrived(peer, key, ToStatus(note.arrived()));
    case v1::KvNote::kSent: return OnSent(peer, key, ToStatus(note.sent()), note.sent().transfer());
    default: return;  // no other note goes this way; a worker of another version cannot join
  }
}

}  // namespace tessera::worker
