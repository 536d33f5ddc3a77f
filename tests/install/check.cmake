# Installs the build into a fresh prefix and uses it as a stranger would: by find_package, by pkg-config, by command.
#   cmake -DBUILD=… -DSOURCE=… -DCXX=… -DWORK=… -P check.cmake
set(prefix ${WORK}/prefix)
set(model ${SOURCE}/tests/models/mlp/model.onnx)
set(hello ${SOURCE}/examples/hello)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
  set(output ${output} PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

run(${CMAKE_COMMAND} -S ${hello} -B ${WORK}/by_package -G Ninja -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${WORK}/by_package)
run(${WORK}/by_package/hello ${model})

file(GLOB_RECURSE pc ${prefix}/tessera.pc)
get_filename_component(pc_folder ${pc} DIRECTORY)
run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_folder} pkg-config --cflags --libs tessera)
separate_arguments(flags UNIX_COMMAND "${output}")
run(${CXX} ${hello}/hello.cpp -o ${WORK}/by_pkg_config ${flags})
run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_folder} pkg-config --variable=libdir tessera)
string(STRIP "${output}" libdir)
run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${libdir} ${WORK}/by_pkg_config ${model})

run(${prefix}/bin/tessera inspect ${model})
