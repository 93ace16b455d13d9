// Our declarations of NCCL against nccl.h, where there is one.
#include <catch2/catch.hpp>
#include <cstddef>

#include "kernels/cuda/driver/nccl_table.h"
#include "tests/catch_skip.h"
#include "tests/kernels/cuda/driver/same_call.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace tessera::kernels::cuda {
namespace {

#define TESSERA_CHECK(name, ...) \
  static_assert(SameCall<decltype(&nccl##name), decltype(NcclTable::name)>::value);
TESSERA_NCCL_FUNCTIONS(TESSERA_CHECK)
#undef TESSERA_CHECK

TEST_CASE("structures and numbers are nccl.h's") {
  CHECK(sizeof(NcclId) == sizeof(ncclUniqueId));
  // The start of theirs, padding included.
  CHECK(NcclConfig().size_bytes <= sizeof(ncclConfig_t));
  CHECK(NcclConfig().size_bytes >= offsetof(ncclConfig_t, blocking) + sizeof(int));
  CHECK(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
  CHECK(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
  CHECK(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 17, 0)
  CHECK(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
  CHECK(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
  CHECK(offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs));
  CHECK(offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
  CHECK(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
  CHECK(int{kNcclUndefined} == NCCL_CONFIG_UNDEF_INT);
#endif
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  CHECK(ours.magic == theirs.magic);
  CHECK(ours.version <= theirs.version);
  CHECK(NCCL_VERSION(2, 14, 0) == ours.version);
  CHECK(int{kNcclSuccess} == ncclSuccess);
  CHECK(int{kNcclInProgress} == ncclInProgress);
  CHECK(int{kNcclUint8} == ncclUint8);
}

}  // namespace
}  // namespace tessera::kernels::cuda

#else

TEST_CASE("structures and numbers are nccl.h's") {
  TESSERA_SKIP("no CUDA header nccl.h: deploy/install_cuda --runtime fetches it");
}

#endif
