// The mutexes of gRPC as distributions build it: with assertions, where each lock looks for cycles
// in the order in which threads take locks. That is for gRPC's own developers, and costs a process
// with thousands of streams a tenth of its time.
#pragma once

namespace tessera {

// For the whole process; before its first use of gRPC.
void SkipMutexChecks();

}  // namespace tessera
