#include "worker/transfer/kv_link_port.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "worker/engine/kv_messages.h"
#include "worker/transfer/kv_codec.h"
#include "worker/transfer/kv_frame.h"
#include "worker/transfer/kv_link_follower.h"
#include "worker/transfer/kv_link_mover.h"
#include "worker/transfer/kv_transport.h"

namespace tessera::worker {
namespace {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool IsInside(const IndexRange& part, const IndexRange& whole) {
  return whole.begin <= part.begin && part.begin < part.end && part.end <= whole.end;
}

bool IsOfStates(const v1::KvShare& part) { return part.key_groups().end() > 0; }

// A part as the pool that it is of has it.
kvcache::KvShare PartOfPool(const v1::KvShare& part) {
  return {ToIndexRange(part.layers()),
          ToIndexRange(IsOfStates(part) ? part.key_groups() : part.kv_heads())};
}

}  // namespace

absl::Status KvLinkPort::CheckPart(const v1::KvShare& part) const {
  const bool states = IsOfStates(part);
  const kvcache::KvShare share = PartOfPool(part);
  const kvcache::KvShare& held = states ? pools_.states.share : pools_.kv.share;
  if (IsInside(share.layers, held.layers) && IsInside(share.kv_heads, held.kv_heads)) {
    return absl::OkStatus();
  }
  const char* heads = states ? ", key groups " : ", heads ";
  return absl::InvalidArgumentError(
      StrCat(states ? "states" : "KV", " of layers ", share.layers.begin, " to ", share.layers.end,
             heads, share.kv_heads.begin, " to ", share.kv_heads.end, "; this worker holds layers ",
             held.layers.begin, " to ", held.layers.end, heads, held.kv_heads.begin, " to ",
             held.kv_heads.end));
}

KvPortOpener OpenKvLinkPorts(KvLinkOptions options) {
  return [options = std::move(options)](const KvPortPools& pools, int self,
                                        std::shared_ptr<const void> owner) {
    return std::make_shared<KvLinkPort>(options, pools, self, std::move(owner));
  };
}

KvLinkPort::KvLinkPort(KvLinkOptions options, const KvPortPools& pools, int self,
                       std::shared_ptr<const void> owner)
    : options_(std::move(options)), pools_(pools), self_(self), owner_(std::move(owner)) {}

KvLinkPort::~KvLinkPort() {
  SetListener(nullptr);
  while (!rooms_.empty()) CloseRoom(rooms_.begin()->first);
  while (!shipments_.empty()) Drop(shipments_.begin()->first);
}

std::unique_ptr<KvMover> KvLinkPort::Lead(Replica replica) {
  return std::make_unique<KvLinkMover>(shared_from_this(), std::move(replica));
}

std::unique_ptr<KvMemberPart> KvLinkPort::Follow(Answer answer) {
  return std::make_unique<KvLinkFollower>(shared_from_this(), std::move(answer));
}

void KvLinkPort::SetListener(Listener* listener) {
  std::lock_guard lock(listener_mutex_);
  listener_ = listener;
}

void KvLinkPort::Tell(const std::function<void(Listener&)>& what) {
  std::lock_guard lock(listener_mutex_);
  if (listener_ != nullptr) what(*listener_);
}

absl::Status KvLinkPort::CheckRoom(const v1::KvRoom& room) const {
  absl::Status status;
  bool states = false;
  for (const v1::KvShare& part : room.parts()) {
    status.Update(CheckPart(part));
    states = states || IsOfStates(part);
  }
  if (states && (room.seat() < 0 || room.seat() >= pools_.states.blocks)) {
    status.Update(absl::InvalidArgumentError(StrCat("place ", room.seat(),
                                                    " for states on their way; this worker has ",
                                                    pools_.states.blocks)));
  }
  for (const int32_t block : room.blocks()) {
    if (block >= 0 && block < pools_.kv.blocks) continue;
    status.Update(absl::InvalidArgumentError(
        StrCat("KV block ", block, "; this worker's pool has ", pools_.kv.blocks)));
  }
  status.Update(CheckWindow(room));
  if (room.parts().empty() || room.first_token() < 0 || room.first_token() >= room.end_token() ||
      room.end_token() > room.blocks_size() * pools_.kv.block_tokens) {
    status.Update(absl::InvalidArgumentError(
        StrCat("room for the KV of tokens ", room.first_token(), " to ", room.end_token(), " in ",
               room.blocks_size(), " blocks and ", room.parts_size(), " parts")));
  }
  return status;
}

absl::Status KvLinkPort::CheckWindow(const v1::KvRoom& room) const {
  if (room.window_blocks_size() != (pools_.kv.windowed.empty() ? 0 : room.blocks_size())) {
    return absl::InvalidArgumentError(
        StrCat("room for KV in ", room.blocks_size(), " blocks and ", room.window_blocks_size(),
               " of layers with a window; this worker ",
               pools_.kv.windowed.empty() ? "keeps no windows apart" : "keeps windows apart"));
  }
  const int64_t first = room.window_first_token() / pools_.kv.block_tokens;
  for (int i = 0; i < room.window_blocks_size(); ++i) {
    const int32_t block = room.window_blocks(i);
    if (block < pools_.kv.window_blocks && (block >= 0 || i < first)) continue;
    return absl::InvalidArgumentError(StrCat("KV block ", block,
                                             " of layers with a window; this worker's pool has ",
                                             pools_.kv.window_blocks));
  }
  const bool in_order = room.window_first_token() >= room.first_token() &&
                        room.window_first_token() < room.end_token();
  if (in_order || room.window_blocks().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("room for the KV of tokens ", room.first_token(), " to ",
                                           room.end_token(), " that has a window from token ",
                                           room.window_first_token(), " on"));
}

absl::StatusOr<v1::KvRoomReady> KvLinkPort::OpenRoom(const KvKey& key, const v1::KvRoom& room) {
  if (absl::Status status = CheckRoom(room); !status.ok()) return status;
  {
    std::lock_guard lock(mutex_);
    if (!rooms_.try_emplace(key, Room{{}, static_cast<size_t>(room.parts_size())}).second) {
      return absl::InvalidArgumentError(
          StrCat("there is room for submission ", key.first, " attempt ", key.second, " already"));
    }
  }
  v1::KvRoomReady ready;
  for (const std::string& address : options_.addresses) ready.add_addresses(address);
  ready.set_incarnation(options_.incarnation);
  for (const v1::KvShare& part : room.parts()) {
    KvPartRoom expected;
    expected.lease_seconds = room.lease_seconds();
    expected.place.part = PartOfPool(part);
    if (IsOfStates(part)) {
      expected.place.states = true;
      expected.lease_seconds = kStatesSeconds;  // keys and values come beside them
      expected.place.pool = pools_.states;
      expected.place.table = {room.seat()};
      expected.place.end = pools_.states.block_tokens;
    } else {
      expected.place.pool = pools_.kv;
      expected.place.codec = room.codec();
      expected.place.table.assign(room.blocks().begin(), room.blocks().end());
      expected.place.first = room.first_token();
      expected.place.end = room.end_token();
      expected.place.window_table.assign(room.window_blocks().begin(), room.window_blocks().end());
      expected.place.window_first = room.window_first_token();
    }
    expected.done = [this, key](const absl::Status& status) { OnPart(key, status); };
    ready.add_tickets(options_.inbox->Expect(std::move(expected)));
  }
  std::lock_guard lock(mutex_);
  const auto found = rooms_.find(key);
  if (found != rooms_.end()) {
    found->second.tickets.assign(ready.tickets().begin(), ready.tickets().end());
  }
  return ready;
}

void KvLinkPort::OnPart(const KvKey& key, const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    const auto found = rooms_.find(key);
    if (found == rooms_.end() || found->second.missing == 0) return;
    if (status.ok() && --found->second.missing > 0) return;
    if (status.ok()) {
      rooms_.erase(found);
    } else {
      found->second.missing = 0;  // other parts may come until it is closed
    }
  }
  Tell([&](Listener& listener) { listener.OnPartArrived(key, status); });
}

void KvLinkPort::CloseRoom(const KvKey& key) {
  std::vector<std::string> tickets;
  {
    std::lock_guard lock(mutex_);
    const auto found = rooms_.find(key);
    if (found == rooms_.end()) return;
    tickets = std::move(found->second.tickets);
    rooms_.erase(found);
  }
  for (const std::string& ticket : tickets) options_.inbox->Forget(ticket);
}

void KvLinkPort::Begin(std::span<const KvPush> pushes, const StepArrays& arrays) {
  pushes_.clear();
  for (const KvPush& push : pushes) {
    const KvKey key{push.submission_id, push.attempt};
    StepPush& mine = pushes_.emplace_back();
    {
      std::lock_guard lock(mutex_);
      const auto open = shipments_.find(key);
      if (open != shipments_.end()) mine.parcels = open->second.parcels;
    }
    if (mine.parcels.empty() && push.first == push.target->first_token()) {
      mine.parcels = OpenShipment(key, push);
    }
    if (mine.parcels.empty()) {  // nothing of it is this worker's
      pushes_.pop_back();
      continue;
    }
    size_t before = 0;
    for (int32_t i = 0; i < push.sequence; ++i) before += arrays.table_widths()[i];
    const auto table_of = [&](std::span<const int32_t> tables) {
      const auto blocks =
          tables.subspan(before, static_cast<size_t>(arrays.table_widths()[push.sequence]));
      return std::make_shared<const std::vector<int32_t>>(blocks.begin(), blocks.end());
    };
    mine.table = table_of(arrays.tables());
    if (arrays.windows_apart()) mine.window_table = table_of(arrays.window_tables());
    mine.end = push.end;
    mine.exchange = push.exchange;
  }
}

std::vector<KvLinkPort::ParcelOfLayers> KvLinkPort::OpenShipment(const KvKey& key,
                                                                 const KvPush& push) {
  std::vector<const v1::KvRoute*> mine;
  absl::Status status;
  for (const v1::KvRoute& route : push.target->routes()) {
    if (route.sender() != self_) continue;
    mine.push_back(&route);
    status.Update(CheckPart(route.part()));
  }
  if (!status.ok()) {
    Tell([&](Listener& listener) { listener.OnPartSent(key, status, {}); });
    return {};
  }
  if (mine.empty()) return {};
  std::vector<ParcelOfLayers> parcels;
  {
    std::lock_guard lock(mutex_);
    Shipment& shipment = shipments_[key];
    shipment.missing = mine.size();
    shipment.began_seconds = NowSeconds();
    shipment.transfer.set_codec(push.target->codec());
  }
  for (const v1::KvRoute* route : mine) {
    KvParcel parcel;
    parcel.route = *route;
    const bool states = IsOfStates(route->part());
    parcel.pool = states ? pools_.states : pools_.kv;
    if (!states) parcel.codec = push.target->codec();
    parcel.first = states ? 0 : push.target->first_token();
    parcel.end = states ? pools_.states.block_tokens : push.prompt_tokens;
    if (!states)
      parcel.window_first = std::max(push.target->first_token(), push.target->window_first_token());
    parcel.done = [this, key](const KvParcelOutcome& outcome) { OnParcel(key, outcome); };
    parcels.push_back(
        {options_.outbox->Open(std::move(parcel)), PartOfPool(route->part()).layers, states});
  }
  std::lock_guard lock(mutex_);
  if (const auto open = shipments_.find(key); open != shipments_.end()) {
    open->second.parcels = parcels;
  }
  return parcels;
}

void KvLinkPort::OnLayerWritten(int64_t index) {
  auto layer = static_cast<int32_t>(pools_.first_layer + index);
  if (pools_.has_states()) {
    const std::vector<int32_t>& with_kv = pools_.kv_layers;
    const auto found = std::lower_bound(with_kv.begin(), with_kv.end(), layer);
    if (found == with_kv.end() || *found != layer) return;
    layer = static_cast<int32_t>(found - with_kv.begin());
  }
  for (const StepPush& push : pushes_) {
    for (const ParcelOfLayers& parcel : push.parcels) {
      if (parcel.states || layer < parcel.layers.begin || layer >= parcel.layers.end) continue;
      options_.outbox->Add(parcel.id, layer,
                           pools_.kv.IsWindowed(layer) ? push.window_table : push.table, push.end);
    }
  }
}

void KvLinkPort::OnStatesSaved() {
  for (const StepPush& push : pushes_) {
    if (push.exchange < 0) continue;
    const auto table =
        std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{push.exchange});
    for (const ParcelOfLayers& parcel : push.parcels) {
      if (!parcel.states) continue;
      for (int32_t layer = parcel.layers.begin; layer < parcel.layers.end; ++layer)
        options_.outbox->Add(parcel.id, layer, table, pools_.states.block_tokens);
    }
  }
}

void KvLinkPort::OnParcel(const KvKey& key, const KvParcelOutcome& outcome) {
  v1::KvTransfer transfer;
  {
    std::lock_guard lock(mutex_);
    const auto found = shipments_.find(key);
    if (found == shipments_.end() || found->second.missing == 0) return;
    Shipment& shipment = found->second;
    v1::KvTransfer& sum = shipment.transfer;
    sum.set_bytes(sum.bytes() + static_cast<uint64_t>(outcome.bytes));
    sum.set_transport(SlowerWay(sum.transport(), DescribeWay(outcome.transport, outcome.staged)));
    if (outcome.status.ok() && --shipment.missing > 0) return;
    sum.set_seconds(NowSeconds() - shipment.began_seconds);
    transfer = sum;
    if (outcome.status.ok()) {
      shipments_.erase(found);
    } else {
      shipment.missing = 0;  // the others go on until it is dropped
    }
  }
  Tell([&](Listener& listener) { listener.OnPartSent(key, outcome.status, transfer); });
}

void KvLinkPort::Drop(const KvKey& key) {
  std::vector<ParcelOfLayers> parcels;
  {
    std::lock_guard lock(mutex_);
    const auto found = shipments_.find(key);
    if (found == shipments_.end()) return;
    parcels = std::move(found->second.parcels);
    shipments_.erase(found);
  }
  for (const ParcelOfLayers& parcel : parcels) options_.outbox->Stop(parcel.id);
}

}  // namespace tessera::worker
