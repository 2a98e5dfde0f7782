# For halfbyte::network: ranks of several machines, by c10d's Gloo. LibTorch's wheels have Gloo, but not its headers; older
# ones (Debian's) give enough of them, which holds for the version below alone and is tried here by two processes.
set(network_missing)
if(NOT Torch_VERSION MATCHES "^2\\.13\\.")
  set(network_missing "LibTorch 2.13 (this is ${Torch_VERSION})")
elseif(SKBUILD)
  set(network_missing "one version of LibTorch, and a package for Python serves several")
else()
  find_path(gloo_include gloo/transport/device.h)
  find_package(OpenSSL QUIET)
  if(NOT gloo_include)
    set(network_missing "Gloo's headers (Debian: libgloo-dev)")
  elseif(NOT OPENSSL_FOUND)
    set(network_missing "OpenSSL (Debian: libssl-dev)")
  endif()
endif()
if(NOT network_missing)
  if(NOT DEFINED HALFBYTE_NETWORK_WORKS)
    message(STATUS "trying two processes by Gloo")
    try_run(HALFBYTE_NETWORK_WORKS network_compiles ${PROJECT_BINARY_DIR}/network_check ${CMAKE_CURRENT_LIST_DIR}/network_check.cpp
            CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${TORCH_INCLUDE_DIRS};${gloo_include}" CXX_STANDARD 20
            LINK_LIBRARIES ${TORCH_INSTALL_PREFIX}/lib/libtorch_cpu.so ${TORCH_INSTALL_PREFIX}/lib/libc10.so
            COMPILE_OUTPUT_VARIABLE network_said RUN_OUTPUT_VARIABLE network_ran)
    file(WRITE ${PROJECT_BINARY_DIR}/network_check.log "${network_said}\n${network_ran}")
  endif()
  if(NOT HALFBYTE_NETWORK_WORKS STREQUAL 0)
    set(network_missing "what LibTorch does not do here: two processes did not add by Gloo (${PROJECT_BINARY_DIR}/network_check.log)")
    unset(HALFBYTE_NETWORK_WORKS CACHE)  # next time it may
  endif()
endif()

if(network_missing)
  message(STATUS "ranks of several machines are left out: they need ${network_missing}")
endif()
