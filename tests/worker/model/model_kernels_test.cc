// Which kernels a GPU's steps are computed by: no model falls to a slow one without that being
// known here. Launches are counted and write nothing, so that every model is looked at in every
// type.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "proto/model/model_folder.h"
#include "tests/kernels/device_under_test.h"
#include "tests/logged_lines.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/model/model_dtypes.h"

namespace tessera::worker {
namespace {

// Ops that slow kernels compute, as the worker's log names them. An entry that no model shows any
// more fails the test, as does a line of the log that is not here.
struct Exception {
  const char* line;
  const char* why;
};
constexpr Exception kExceptions[] = {
    {"inear: the plain kernel computes it: float32 weights are summed in one order",
     "routers decide a lot and are small; float32 is asked for where every bit counts"},
    {"inear: GEMV computes it, which reads the weights again for each 2 rows: tensor cores do not "
     "take float32 activations and ",
     "float32 is asked for where every bit counts"},
    {"Attention: the plain kernel computes it: float32 keys, float32 queries, multiplied as "
     "float32",
     "float32 is asked for where every bit counts"},
    {"Attention: the plain kernel computes it: heads of 8", "of tiny models alone"},
    {"Attention: the plain kernel computes it: heads of 16", "of tiny models alone"},
    {"Attention: the plain kernel computes it: heads of 32", "of tiny models alone"},
};

// The line ends behind the entry, or goes on with another word.
bool Shows(const std::string& line, const Exception& exception) {
  const size_t at = line.find(exception.line);
  if (at == std::string::npos) return false;
  const size_t end = at + std::string_view(exception.line).size();
  return end == line.size() || line[end] < '0' || line[end] > '9';
}

// A prompt and one token more, as a worker on such a GPU would compute them: the lines of its log.
std::vector<std::string> LinesOf(const std::string& name, v1::DataType requested, int capability,
                                 v1::DataType kv = v1::DATA_TYPE_UNSPECIFIED) {
  const auto model = ReadModelFolder(GoldenFolder(name).string());
  REQUIRE(model.ok());
  const auto types =
      ResolveDTypes(*model, requested, kv, {.float16 = true, .bfloat16 = capability >= 80});
  if (!types.ok()) return {};  // refused, with its reason
  const tests::LoggedLines lines("kernels");
  TinyModel tiny(GoldenFolder(name), {.cuda = true,
                                      .weight_dtype = types->weight_dtype,
                                      .kv_dtype = types->kv_dtype,
                                      .product_dtype = types->product_dtype,
                                      .block_tokens = 16});
  const std::vector<int32_t> prompt(40, 1);
  tiny.Run({{.tokens = prompt, .prompt_tokens = 40}});
  tiny.Run({{.tokens = {1}, .first_position = 40, .prompt_tokens = 40}});
  return lines.All();
}

}  // namespace

TEST_CASE("no op of a GPU's step has a slow kernel that is not known to be one") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  kernels::cuda::emulated::Inject({.runs_nothing = true});
  std::set<std::string> shown;
  using Types = std::pair<v1::DataType, v1::DataType>;  // of weights and of KV
  constexpr v1::DataType kAuto = v1::DATA_TYPE_UNSPECIFIED;
  for (const std::string& name : GoldenModels()) {
    for (const auto& [requested, kv] :
         {Types{kAuto, kAuto}, Types{v1::DATA_TYPE_FLOAT16, kAuto},
          Types{v1::DATA_TYPE_BFLOAT16, kAuto}, Types{v1::DATA_TYPE_INT8, kAuto},
          Types{v1::DATA_TYPE_FLOAT32, kAuto}, Types{v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_INT8},
          Types{v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_FP8}}) {
      for (const std::string& line : LinesOf(name, requested, 90, kv)) {
        std::string known;
        for (const Exception& exception : kExceptions) {
          if (Shows(line, exception)) known = exception.line;
        }
        INFO(name << ", asked for " << v1::DataType_Name(requested) << ": " << line);
        CHECK(!known.empty());
        shown.insert(known);
      }
    }
  }
  for (const Exception& exception : kExceptions) {
    INFO(exception.line << " (" << exception.why << ") is an exception no more: take it off");
    CHECK(shown.contains(exception.line));
  }
  kernels::cuda::emulated::Inject({});
#endif
}

TEST_CASE("GPUs before and after Hopper have fast kernels too, Turing in float16") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  kernels::cuda::emulated::Inject({.runs_nothing = true});
  constexpr const char* kModel = "llama_bf16_heads_64";
  for (const int capability : {75, 86, 120}) {
    kernels::cuda::emulated::SetCapability(capability);
    for (const v1::DataType requested :
         {v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_INT8}) {
      for (const v1::DataType kv : {v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_INT8}) {
        CAPTURE(capability, v1::DataType_Name(requested), v1::DataType_Name(kv));
        CHECK(LinesOf(kModel, requested, capability, kv) == std::vector<std::string>());
      }
    }
  }
  // What has no arithmetic there is read again for every few rows, and the log says so.
  kernels::cuda::emulated::SetCapability(75);
  const std::vector<std::string> slow = LinesOf(kModel, v1::DATA_TYPE_BFLOAT16, 75);
  CHECK(!slow.empty());
  for (const std::string& line : slow) CHECK_THAT(line, Catch::Contains("GEMV computes it"));
  kernels::cuda::emulated::SetCapability(90);
  kernels::cuda::emulated::Inject({});
#endif
}

// Norms, products (qkv, output, gate and up, down), what is between projections and attention,
// attention, and the activation, which of one row is the product's; behind the layers what stands
// for a step.
TEST_CASE("a layer of a GPU's step takes nine launches, of one row eight, in every type") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  kernels::cuda::emulated::Inject({.runs_nothing = true});
  const auto model = ReadModelFolder(GoldenFolder("llama_bf16_heads_64").string());
  REQUIRE(model.ok());
  constexpr int64_t kLayers = 2;
  // Ids to rows, the rotation's table; rows of logits and what they attended to; the last norm.
  constexpr int64_t kOfStep = 5;
  for (const v1::DataType requested : {v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_INT8}) {
    const auto types = ResolveDTypes(*model, requested, v1::DATA_TYPE_UNSPECIFIED,
                                     {.float16 = true, .bfloat16 = true});
    REQUIRE(types.ok());
    TinyModel tiny(GoldenFolder("llama_bf16_heads_64"), {.cuda = true,
                                                         .weight_dtype = types->weight_dtype,
                                                         .kv_dtype = types->kv_dtype,
                                                         .product_dtype = types->product_dtype});
    const auto launches = [&](int sequences, int rows) {
      std::vector<Chunk> chunks;
      for (int i = 0; i < sequences; ++i) {
        chunks.push_back({i, std::vector<int32_t>(rows, 1), 0, rows});
      }
      const int64_t before = kernels::cuda::emulated::LaunchesMade();
      tiny.Run(chunks);
      return kernels::cuda::emulated::LaunchesMade() - before;
    };
    CAPTURE(v1::DataType_Name(requested));
    CHECK(launches(1, 1) == kOfStep + 8 * kLayers + 1);  // no product rounds its inputs
    CHECK(launches(4, 2) == kOfStep + 9 * kLayers + 2);  // the head's inputs are rounded
    // The step does not say that no sequence has few rows.
    CHECK(launches(1, 40) == kOfStep + 10 * kLayers + 2);
  }
  kernels::cuda::emulated::Inject({});
#endif
}

TEST_CASE(
    "int4 in groups that no fast kernel takes is decoded when it is read, and the log says so") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  kernels::cuda::emulated::Inject({.runs_nothing = true});
  const tests::LoggedLines lines("worker");
  const char* const narrow = "which the device has no fast kernel for";
  LinesOf("qwen2_awq", v1::DATA_TYPE_UNSPECIFIED, 90);  // groups of 32
  CHECK(lines.Count(narrow) == 0);
  CHECK(lines.Count("codes became") == 0);
  LinesOf("llama_gptq", v1::DATA_TYPE_UNSPECIFIED, 90);
  CHECK(lines.Count(narrow) == 1);
  CHECK(lines.Count("'model.layers.0.self_attn.q_proj', have codes in groups of 16, ") == 1);
  CHECK(lines.Count("codes became") == 1);
  kernels::cuda::emulated::Inject({});
#endif
}

TEST_CASE("keys and values in 8 bits are attended on a GPU's tensor cores, as a CPU attends them") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  using kernels::DType;
  for (const DType kv : {DType::kI8, DType::kF8}) {
    INFO(Name(kv));
    const tests::LoggedLines lines("kernels");
    TinyOptions options = {.weight_dtype = DType::kBF16,
                           .kv_dtype = kv,
                           .product_dtype = DType::kBF16,
                           .block_tokens = 16};
    TinyModel cpu(GoldenFolder("llama_bf16_heads_64"), options);
    options.cuda = true;
    TinyModel gpu(GoldenFolder("llama_bf16_heads_64"), options);
    std::vector<int32_t> prompt(40);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7 % 60 + 1);
    for (const Chunk& chunk : {Chunk{.tokens = prompt, .prompt_tokens = 40},
                               Chunk{.tokens = {5}, .first_position = 40, .prompt_tokens = 40}}) {
      const auto got = gpu.Run({chunk}), want = cpu.Run({chunk});
      CHECK(RelativeError(got.back(), want.back()) < 0.05);
    }
    CHECK(lines.Count("Attention") == 0);
  }
#endif
}

}  // namespace tessera::worker
