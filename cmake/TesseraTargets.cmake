# Options and helpers that every folder's CMakeLists uses.
option(TESSERA_TESTS "build the tests" ON)
option(TESSERA_BENCH "build the benchmark programs" OFF)
option(TESSERA_FUZZ "build the fuzzers, which need clang" OFF)
set(TESSERA_SANITIZE "" CACHE STRING "thread, or address,undefined; empty for none")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
add_compile_options(-Wall -Wextra -Wpedantic -Werror -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)  # says where `omp simd` does not vectorise, as with sanitizers
  add_compile_options(-Wno-pass-failed)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # collects garbage when it holds 1 GB: often sooner, it takes a tenth of the time
  add_compile_options(--param=ggc-min-heapsize=1000000)
endif()
if(TESSERA_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")  # builds in half the time of -O2; reports name lines
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # instrumented, what is initialized no longer looks so to it
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
  if(TESSERA_SANITIZE MATCHES thread)
    add_compile_options(-Wno-tsan)  # libgomp's fences are not instrumented; sanitized runs use teams of one
    add_compile_definitions(TESSERA_THREAD_SANITIZER)
  endif()
endif()
if(TESSERA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()
find_program(TESSERA_MOLD mold)
if(TESSERA_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# The .cpp files of a folder and of its rooms, which are folders within it.
function(tessera_sources result folder)
  list(TRANSFORM ARGN REPLACE "(.+)" "${folder}/\\1/*.cpp" OUTPUT_VARIABLE rooms)
  file(GLOB found CONFIGURE_DEPENDS ${folder}/*.cpp ${rooms})
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# Notes the rooms of a folder of src/tessera, which its tests have, too.
function(tessera_rooms name)
  set_property(GLOBAL PROPERTY TESSERA_ROOMS_${name} ${ARGN})
endfunction()

# tessera_embed(TARGET FUNCTION HEADER TYPE [STEMS] FILES...): a function of the target that returns the files as a vector of
# TYPE, each with its name (without its extension if STEMS is given) and its text. HEADER declares both.
function(tessera_embed target function header type)
  cmake_parse_arguments(PARSE_ARGV 4 given "STEMS" "" "")
  set(rows)
  foreach(path IN LISTS given_UNPARSED_ARGUMENTS)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} text)
    if(given_STEMS)
      cmake_path(GET path STEM LAST_ONLY name)
    else()
      cmake_path(GET path FILENAME name)
    endif()
    string(APPEND rows "      {\"${name}\", R\"file(${text})file\"},\n")
  endforeach()
  string(REGEX REPLACE "^tessera_" "" room ${target})
  file(CONFIGURE OUTPUT ${function}.cpp @ONLY CONTENT [[
#include "@header@"

namespace tessera::@room@ {

std::vector<@type@> @function@() {
  return {
@rows@  };
}

}  // namespace tessera::@room@
]])
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
endfunction()

# tessera_library(NAME DEPENDS... [ROOMS FOLDERS...]): an object library of the folder's own *.cpp and of those in its
# rooms, with what it includes.
function(tessera_library name)
  cmake_parse_arguments(PARSE_ARGV 1 with "" "" ROOMS)
  tessera_rooms(${name} ${with_ROOMS})
  set(ARGN ${with_UNPARSED_ARGUMENTS})
  tessera_sources(sources ${CMAKE_CURRENT_SOURCE_DIR} ${with_ROOMS})
  if(NOT sources)  # headers only
    add_library(tessera_${name} INTERFACE)
    target_include_directories(tessera_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(tessera_${name} INTERFACE ${ARGN})
    return()
  endif()
  add_library(tessera_${name} STATIC ${sources})
  # A unit's headers take a quarter of its time. Kernels, which take longer by themselves, keep smaller units.
  set_target_properties(tessera_${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 20)
  target_include_directories(tessera_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(tessera_${name} PUBLIC ${ARGN})
  set_property(GLOBAL APPEND PROPERTY TESSERA_LIBRARIES tessera_${name})
endfunction()

# tessera_proto(TARGET NAMES...): the classes of proto/tessera/NAME.proto, as <tessera/NAME.pb.h>: a library of its own, so
# that warnings and headers stay there. Their package, and the name by which a program knows the file, are Tessera's own:
# protobuf ends a program that has two of one name, and others may link ONNX's or Chakra's. Neither name is written
# anywhere.
function(tessera_proto target)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${generated})
  list(TRANSFORM ARGN REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/proto/tessera/\\1.proto" OUTPUT_VARIABLE definitions)
  set(sources)
  foreach(name IN LISTS ARGN)
    set(base ${generated}/tessera/${name}.pb)
    add_custom_command(
      OUTPUT ${base}.cc ${base}.h
      COMMAND protobuf::protoc --proto_path=${PROJECT_SOURCE_DIR}/proto --cpp_out=${generated} tessera/${name}.proto
      DEPENDS ${definitions}
      VERBATIM)
    list(APPEND sources ${base}.cc ${base}.h)
  endforeach()
  add_library(${target} STATIC ${sources})
  target_compile_options(${target} PRIVATE -w)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)  # generated files use each other's names
  # Without it the generated code complains on stderr about texts that are not UTF-8; such models are read as they are.
  target_compile_definitions(${target} PRIVATE NDEBUG)
  target_include_directories(${target} SYSTEM PUBLIC ${generated})
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf)
endfunction()

# For what takes a small part of a command's time, as options and the files of programs: -Og compiles in 0.6 of -O2's
# time. The linker keeps the first copy of an inline function, so these objects come last in the shared library.
function(tessera_compile_quickly target)
  set_target_properties(${target} PROPERTIES TESSERA_QUICKLY ON)
  if(NOT TESSERA_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  endif()
endfunction()
