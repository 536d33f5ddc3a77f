# make install: one shared library, its public headers, the command, a CMake package and a pkg-config file.
include(CMakePackageConfigHelpers)

# The library is made of all folder libraries' objects, because from an archive the linker takes only what is used here.
get_property(all_libraries GLOBAL PROPERTY TESSERA_LIBRARIES)
set(folder_libraries)
set(quick)
foreach(library IN LISTS all_libraries)
  get_target_property(quickly ${library} TESSERA_QUICKLY)
  if(quickly)
    list(APPEND quick ${library})
  else()
    list(APPEND folder_libraries ${library})
  endif()
endforeach()
list(APPEND folder_libraries ${quick})
list(TRANSFORM folder_libraries REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
add_library(tessera_shared SHARED ${objects})
set_target_properties(tessera_shared PROPERTIES
  OUTPUT_NAME tessera
  EXPORT_NAME tessera
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR})
target_link_libraries(tessera_shared PRIVATE ${folder_libraries})  # for the libraries that they need
# A program may have classes of its own with the names of what is inside, or of what that is made of.
target_link_options(tessera_shared PRIVATE LINKER:--version-script,${PROJECT_SOURCE_DIR}/cmake/tessera.map)
set_target_properties(tessera_shared PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/tessera.map)
target_include_directories(tessera_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tessera_shared INTERFACE cxx_std_20)
add_library(tessera::tessera ALIAS tessera_shared)

# The headers: include/, and what its files include from src/, found by following their #include lines. In the build,
# links to them stand in one folder, so that what uses the library there finds no others, either.
file(REMOVE_RECURSE ${PROJECT_BINARY_DIR}/include)
file(GLOB_RECURSE waiting RELATIVE ${PROJECT_SOURCE_DIR}/include CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h)
set(seen)
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST seen)
    continue()
  endif()
  list(APPEND seen ${header})
  set(path ${PROJECT_SOURCE_DIR}/include/${header})
  if(NOT EXISTS ${path})
    set(path ${PROJECT_SOURCE_DIR}/src/${header})
  endif()
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${path} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/${folder})
  file(CREATE_LINK ${path} ${PROJECT_BINARY_DIR}/include/${header} SYMBOLIC)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(STRINGS ${path} lines REGEX "^#include \"tessera/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    list(APPEND waiting ${included})
  endforeach()
endwhile()

# Users debug their own programs.
install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)")
install(TARGETS tessera_shared EXPORT tesseraTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tessera_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Engines as modules: where the command, and the library, look for them.
get_property(plugins GLOBAL PROPERTY TESSERA_PLUGINS)
if(plugins)
  install(TARGETS ${plugins} LIBRARY DESTINATION lib/tessera)
endif()

# Examples of machine files; the library holds them, too.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/share/tessera/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${package_folder})
file(WRITE ${PROJECT_BINARY_DIR}/tesseraConfig.cmake "include(\${CMAKE_CURRENT_LIST_DIR}/tesseraTargets.cmake)\n")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
        DESTINATION ${package_folder})
# The prefix is known only when installing: the file finds it from where it lies.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" up ${up})
configure_file(${PROJECT_SOURCE_DIR}/cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
