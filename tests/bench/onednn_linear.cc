#include "tests/bench/onednn_linear.h"

#include <omp.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

namespace tessera::bench {
namespace {

// Memory in huge pages, as our weights have: asked for before anything is written.
dnnl::memory HugeMemory(const dnnl::memory::desc& desc, const dnnl::engine& engine) {
  constexpr uintptr_t kPage = 4096;
  dnnl::memory memory(desc, engine);
  const auto begin = reinterpret_cast<uintptr_t>(memory.get_data_handle());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t end = (begin + desc.get_size()) / kPage * kPage;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
  return memory;
}

bool MultipliesBf16(const dnnl::engine& engine, const kernels::LinearSpec& spec) {
  constexpr auto kType = dnnl::memory::data_type::bf16;
  const dnnl::memory::desc in({16, spec.in_features}, kType, dnnl::memory::format_tag::ab);
  const dnnl::memory::desc out({16, spec.out_features}, kType, dnnl::memory::format_tag::ab);
  const dnnl::memory::desc any({spec.in_features, spec.out_features}, kType,
                               dnnl::memory::format_tag::any);
  constexpr bool kMayBeEmpty = true;
  return static_cast<bool>(
      dnnl::matmul::primitive_desc(dnnl::matmul::desc(in, any, out), engine, kMayBeEmpty));
}

}  // namespace

struct OneDnnLinears::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::memory::data_type type = dnnl::memory::data_type::f32;
  std::vector<kernels::LinearSpec> specs;
  std::vector<dnnl::memory> weights;  // plain until SetRows packs them
  std::vector<dnnl::matmul> primitives;
  std::vector<std::unordered_map<int, dnnl::memory>> arguments;
  std::string name;
};

OneDnnLinears::OneDnnLinears(kernels::DType dtype, absl::Span<const kernels::LinearSpec> layer,
                             int64_t matrices, int threads)
    : state_(std::make_unique<State>()) {
  omp_set_num_threads(threads);
  if (dtype == kernels::DType::kBF16 && MultipliesBf16(state_->engine, layer[0])) {
    state_->type = dnnl::memory::data_type::bf16;
  }
  for (int64_t i = 0; i < matrices; ++i) {
    const kernels::LinearSpec& spec = layer[i % layer.size()];
    state_->specs.push_back(spec);
    const dnnl::memory::desc plain({spec.in_features, spec.out_features}, state_->type,
                                   dnnl::memory::format_tag::ba);
    state_->weights.push_back(HugeMemory(plain, state_->engine));
    auto* bytes = static_cast<unsigned char*>(state_->weights.back().get_data_handle());
    for (size_t b = 0; b < plain.get_size(); ++b) bytes[b] = b % 2 == 0 ? 0 : 0x3c;
  }
}

OneDnnLinears::~OneDnnLinears() = default;

void OneDnnLinears::SetRows(int64_t rows) {
  State& s = *state_;
  s.primitives.clear();
  s.arguments.clear();
  for (size_t i = 0; i < s.specs.size(); ++i) {
    const auto& spec = s.specs[i];
    const dnnl::memory::desc in({rows, spec.in_features}, s.type, dnnl::memory::format_tag::ab);
    const dnnl::memory::desc out({rows, spec.out_features}, s.type, dnnl::memory::format_tag::ab);
    const dnnl::memory::desc any({spec.in_features, spec.out_features}, s.type,
                                 dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(in, any, out), s.engine);
    s.name = description.impl_info_str();
    if (description.weights_desc() != s.weights[i].get_desc()) {
      dnnl::memory packed = HugeMemory(description.weights_desc(), s.engine);
      dnnl::reorder(s.weights[i], packed).execute(s.stream, s.weights[i], packed);
      s.stream.wait();
      s.weights[i] = packed;
    }
    s.primitives.emplace_back(description);
    dnnl::memory input(in, s.engine), output(out, s.engine);
    auto* bytes = static_cast<unsigned char*>(input.get_data_handle());
    for (size_t b = 0; b < in.get_size(); ++b) bytes[b] = b % 2 == 0 ? 0 : 0x3f;
    s.arguments.push_back(
        {{DNNL_ARG_SRC, input}, {DNNL_ARG_WEIGHTS, s.weights[i]}, {DNNL_ARG_DST, output}});
  }
  Run();
}

void OneDnnLinears::Run() {
  for (size_t i = 0; i < state_->primitives.size(); ++i) {
    state_->primitives[i].execute(state_->stream, state_->arguments[i]);
  }
  state_->stream.wait();
}

kernels::DType OneDnnLinears::dtype() const {
  const bool bf16 = state_->type == dnnl::memory::data_type::bf16;
  return bf16 ? kernels::DType::kBF16 : kernels::DType::kF32;
}

const std::string& OneDnnLinears::name() const { return state_->name; }

}  // namespace tessera::bench
