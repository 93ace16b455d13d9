// How fast this machine writes keys and values for the wire and reads them back.
#pragma once

namespace tessera::worker {

// Bytes of raw bfloat16 KV per second that one thread writes as int8, or reads: the slower of both,
// the best of a few runs. Takes some 20 ms. What a codec must beat: raw KV costs two copies.
double ProbeKvCodecRate();

}  // namespace tessera::worker
