// gRPC's own lines in this program's log, in its format; and what its ports refuse, in words.
//
// Thread rule: TakeGrpcLines once, before the first use of gRPC; lines come from any thread.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// For the whole process. Where GRPC_VERBOSITY is set, somebody looks into gRPC: all stays as it is.
void TakeGrpcLines();

// What a handshake that a port of this program refused means, made of gRPC's line about it: who
// came, where gRPC says so, why, and the flag that mends it. Empty: the line is about no handshake.
std::string RefusedHandshake(std::string_view grpc_line);

}  // namespace tessera
