# cmake -DHEADERS=a.h,b.h -DBUILD=TEXT -DOUTPUT=abi.h -P AbiHash.cmake
# Writes a header with a hash of those headers and of the text, only if that changes anything.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" headers "${HEADERS}")
set(all "${BUILD}")
foreach(header ${headers})
  file(SHA256 ${header} hash)
  string(APPEND all " ${hash}")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "#pragma once

namespace tessera::comm {

inline constexpr const char* kAbi = \"@hash@\";

}  // namespace tessera::comm
")
