#include "worker/transfer/kv_link_mover.h"

namespace tessera::worker {

v1::KvTarget KvLinkMover::Expect(const KvPlace& place, double lease_seconds) {
  KvRoom room;
  room.pool = pool_;
  room.table = place.blocks;
  room.first = place.first;
  room.end = place.end;
  room.lease_seconds = lease_seconds;
  room.done = [listener = listener_, id = place.submission_id, attempt = place.attempt](
                  const absl::Status& status) { listener->OnKvArrived(id, attempt, status); };
  v1::KvTarget target;
  target.set_ticket(options_.inbox->Expect(std::move(room)));
  for (const std::string& address : options_.addresses) target.add_addresses(address);
  target.set_incarnation(options_.incarnation);
  target.set_first_token(static_cast<int32_t>(place.first));
  return target;
}

void KvLinkMover::Send(const v1::KvTarget& target, const KvPlace& place) {
  KvShipment shipment;
  shipment.target = target;
  shipment.pool = pool_;
  shipment.table = place.blocks;
  shipment.end = place.end;
  shipment.owner = this;
  shipment.done = [listener = listener_, id = place.submission_id, attempt = place.attempt](
                      const absl::Status& status) { listener->OnKvSent(id, attempt, status); };
  options_.outbox->Send(std::move(shipment));
}

}  // namespace tessera::worker
