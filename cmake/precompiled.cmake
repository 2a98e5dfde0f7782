# Precompiled headers, one for each kind of source, made once and used by every target of that kind:
#
#   halfbyte_precompiled(TARGET core|torch)
#
# core: nlohmann-json and the standard library. torch: LibTorch's modules. A compiler takes a precompiled header only
# where macros and code generation are the same, so the targets of a kind share them: core is compiled with OpenMP, and
# programs as position independent as libraries are (-fPIC, not -fPIE). CLI11 is in none: every source that sees it makes
# its validators, 5 seconds, so those that need it include it.
option(HALFBYTE_PRECOMPILED_HEADERS "Precompile headers: half the time of a build" ON)

function(halfbyte_precompiled target kind)
  if(NOT HALFBYTE_PRECOMPILED_HEADERS)
    return()
  endif()
  if(NOT TARGET halfbyte_precompiled_${kind})
    halfbyte_make_precompiled(${kind})
  endif()
  halfbyte_code_generation(${target} ${kind})
  target_precompile_headers(${target} REUSE_FROM halfbyte_precompiled_${kind})
endfunction()

function(halfbyte_code_generation target kind)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  if(NOT kind STREQUAL torch)
    target_compile_options(${target} PRIVATE ${OpenMP_CXX_FLAGS})
  endif()
endfunction()

function(halfbyte_make_precompiled kind)
  set(owner halfbyte_precompiled_${kind})
  set(source ${PROJECT_BINARY_DIR}/precompiled/${kind}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${owner} OBJECT ${source})
  halfbyte_flags(${owner})
  halfbyte_code_generation(${owner} ${kind})
  target_precompile_headers(${owner} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled/${kind}.h)
  if(kind STREQUAL torch)
    target_link_libraries(${owner} PRIVATE torch)
  else()
    target_link_libraries(${owner} PRIVATE nlohmann_json::nlohmann_json)
  endif()
endfunction()
