// Whether a function that we declare is called as the one in its maker's header. Enumerations are
// passed as integers, structures behind pointers are opaque here.
#pragma once

#include <type_traits>

namespace tessera::kernels::cuda {

template <typename Theirs, typename Ours>
constexpr bool kSameArgument =
    sizeof(Theirs) == sizeof(Ours) && std::is_pointer_v<Theirs> == std::is_pointer_v<Ours>;

template <typename Theirs, typename Ours>
struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<kSameArgument<R, S> && (kSameArgument<A, B> && ...)> {
};

}  // namespace tessera::kernels::cuda
