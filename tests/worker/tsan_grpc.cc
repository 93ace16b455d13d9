// Linked into tests that run a gRPC server: the system's gRPC is not instrumented, so that every
// object its threads hand to our callbacks looks like a race to ThreadSanitizer. Frames of our own
// threads stay judged. Weak, so that a list for all tests may replace it. Without ThreadSanitizer
// nobody calls this.
extern "C" __attribute__((weak)) const char* __tsan_default_suppressions() {
  return "race:grpc::internal::\n"
         "race:grpc::Server\n"
         "race:libgrpc\n";
}
