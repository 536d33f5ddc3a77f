#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace tessera {

template <typename Signature>
class FunctionRef;

/// A reference to the caller's function object: a parameter type for functions that call it while they run, so that
/// their code is compiled only once for all function objects. Must not be stored.
template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <std::invocable<Arguments...> Callable>
  requires(!std::same_as<std::remove_cvref_t<Callable>, FunctionRef>) FunctionRef(Callable&& callable)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(object_, std::forward<Arguments>(arguments)...); }

 private:
  void* object_;
  Result (*call_)(void* object, Arguments... arguments);
};

}  // namespace tessera
