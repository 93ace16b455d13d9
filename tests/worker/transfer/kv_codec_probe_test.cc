#include "worker/transfer/kv_codec_probe.h"

#include <catch2/catch.hpp>

namespace tessera::worker {

TEST_CASE("the codec's rate is that of a processor") {
  const double rate = ProbeKvCodecRate();
  CHECK(rate > 1e7);
  CHECK(rate < 1e12);
}

}  // namespace tessera::worker
