// NVIDIA's NCCL (libnccl.so.2, 2.14 or later) as a table of typed functions: filled at run time, so
// that one program also runs where it is not installed, and by a fake in tests.
//
// The types are the library's ABI, declared here because a build without it has no nccl.h;
// nccl_abi_test holds them against nccl.h where there is one. Thread rule: the table is a plain
// value; a communicator belongs to one thread at a time, but for its abort.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

namespace tessera::kernels::cuda {

using NcclResult = int;  // ncclResult_t
using NcclComm = struct NcclCommunicator*;
using NcclStream = void*;  // cudaStream_t
// ncclUniqueId: by which the ranks of one communicator find each other.
struct NcclId {
  char bytes[128];
};
inline constexpr int kNcclUndefined = INT_MIN;  // the library chooses
// ncclConfig_t as 2.17 had it; by default as 2.14 did, up to `blocking`. By size and version, later
// ones know that the rest is left out.
struct NcclConfig {
  size_t size_bytes = 24;  // 2.14's, with padding
  uint32_t magic = 0xcafebeef;
  uint32_t version = 21400;
  int blocking = 0;
  int cga_cluster_size = kNcclUndefined;
  int min_ctas = kNcclUndefined;
  int max_ctas = kNcclUndefined;  // thread blocks of a call at most
  const char* net_name = nullptr;

  static constexpr int kVersionWithCtas = 21700;
  // From that version of the library on.
  void LimitCtas(int most) {
    size_bytes = sizeof(NcclConfig);
    version = kVersionWithCtas;
    max_ctas = most;
  }
};

inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclInProgress = 7;
inline constexpr int kNcclUint8 = 1;  // ncclDataType_t

// Field, symbol in the library, type.
#define TESSERA_NCCL_FUNCTIONS(X)                                                              \
  X(GetVersion, "ncclGetVersion", NcclResult(int* version))                                    \
  X(GetUniqueId, "ncclGetUniqueId", NcclResult(NcclId* id))                                    \
  X(CommInitRankConfig, "ncclCommInitRankConfig",                                              \
    NcclResult(NcclComm* comm, int ranks, NcclId id, int rank, NcclConfig* config))            \
  X(CommGetAsyncError, "ncclCommGetAsyncError", NcclResult(NcclComm comm, NcclResult* state))  \
  X(CommFinalize, "ncclCommFinalize", NcclResult(NcclComm comm))                               \
  X(CommDestroy, "ncclCommDestroy", NcclResult(NcclComm comm))                                 \
  X(CommAbort, "ncclCommAbort", NcclResult(NcclComm comm))                                     \
  X(AllGather, "ncclAllGather",                                                                \
    NcclResult(const void* in, void* out, size_t in_count, int type, NcclComm comm,            \
               NcclStream stream))                                                             \
  X(Broadcast, "ncclBroadcast",                                                                \
    NcclResult(const void* in, void* out, size_t count, int type, int root, NcclComm comm,     \
               NcclStream stream))                                                             \
  X(Send, "ncclSend",                                                                          \
    NcclResult(const void* in, size_t count, int type, int peer, NcclComm comm,                \
               NcclStream stream))                                                             \
  X(Recv, "ncclRecv",                                                                          \
    NcclResult(void* out, size_t count, int type, int peer, NcclComm comm, NcclStream stream)) \
  X(GroupStart, "ncclGroupStart", NcclResult())                                                \
  X(GroupEnd, "ncclGroupEnd", NcclResult())                                                    \
  X(GetErrorString, "ncclGetErrorString", const char*(NcclResult result))                      \
  X(GetLastError, "ncclGetLastError", const char*(NcclComm comm))

struct NcclTable {
#define TESSERA_TABLE_FIELD(name, symbol, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  TESSERA_NCCL_FUNCTIONS(TESSERA_TABLE_FIELD)
#undef TESSERA_TABLE_FIELD
};

struct OpenedNccl {
  std::optional<NcclTable> table;
  // Where it was found, and its version ("2.28.9"); or, where the table is empty, why: the loader's
  // words, a missing function, or that it is too old.
  std::string file, version, no_nccl;
};

// The library stays loaded. Looked for where the loader looks (LD_LIBRARY_PATH), then in CUDA_HOME
// and beside it, where NVIDIA's wheels have it, then in /usr/local/cuda.
OpenedNccl OpenNccl();

}  // namespace tessera::kernels::cuda
