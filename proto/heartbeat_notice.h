// What a coordinator holds against a worker comes with the answers to its heartbeats, so that both
// logs have it.
#pragma once

namespace tessera {

// Trailing metadata of Heartbeat: a sentence; absent: all is well.
inline constexpr char kNoticeKey[] = "tessera-notice";

}  // namespace tessera
