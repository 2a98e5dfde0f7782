# Precompiled headers, one for each kind of source, made once and used by every target that has such sources:
#
#   halfbyte_precompiled(TARGET core|torch)
#
# core: the standard library; the sources that include nlohmann-json themselves get it too, from a second header, because
# to see it costs half a second each. torch: LibTorch's modules. A compiler takes a precompiled header only where macros
# and code generation are the same, so the targets of a kind share them: core is compiled with OpenMP, and programs as
# position independent as libraries are (-fPIC, not -fPIE). What is optimised more goes without (halfbyte_hot).
#
# Every source that sees LibTorch costs three seconds beside its own, for what LibTorch's headers instantiate; one that
# does not, up to one. So the sources that a target has in one folder are compiled as one: names in their
# anonymous namespaces must differ, or a source must be in halfbyte_alone(SOURCES...). What has flags of its own is
# compiled alone too, and the presets dev, asan and tsan compile every source so: they find an include that is missing.
option(HALFBYTE_PRECOMPILED_HEADERS "Precompile headers: half the time of a build" ON)
option(HALFBYTE_BY_FOLDER "Compile sources by folders: half of the time of all, more after a change of one file" ON)

function(halfbyte_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Of each folder, so many `together`.
function(halfbyte_by_folder target together)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "in_${folder}" group)
    if(NOT DEFINED ${group})
      set(${group} 0)
    endif()
    math(EXPR part "${${group}} / ${together}")
    math(EXPR ${group} "${${group}} + 1")
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${group}_${part})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

function(halfbyte_precompiled target kind)
  if(NOT HALFBYTE_PRECOMPILED_HEADERS)
    return()
  endif()
  halfbyte_code_generation(${target} ${kind})
  set(header ${kind})
  if(kind STREQUAL core)
    set(header json)
  endif()
  halfbyte_make_precompiled(${header})
  target_precompile_headers(${target} REUSE_FROM halfbyte_precompiled_${header})
  if(HALFBYTE_BY_FOLDER AND kind STREQUAL torch)
    halfbyte_by_folder(${target} 100)
  elseif(HALFBYTE_BY_FOLDER)
    halfbyte_by_folder(${target} 12)
  elseif(kind STREQUAL core AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    halfbyte_make_precompiled(core)
    halfbyte_without_json(${target})
  endif()
endfunction()

# Gives the sources of a target that do not include nlohmann-json the header without it.
function(halfbyte_without_json target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "[$]<")  # not known yet; they get the header with JSON
  get_target_property(header halfbyte_precompiled_core HALFBYTE_HEADER)
  foreach(source IN LISTS sources)
    get_source_file_property(is_without ${source} SKIP_PRECOMPILE_HEADERS)
    file(STRINGS ${source} json REGEX "^#include <nlohmann/json.hpp>")
    if(NOT json AND NOT is_without)
      set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -Winvalid-pch -include ${header})
      set_property(SOURCE ${source} APPEND PROPERTY OBJECT_DEPENDS ${header}.gch)
    endif()
  endforeach()
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
  if(TARGET ${owner})
    return()
  endif()
  set(source ${PROJECT_BINARY_DIR}/precompiled/${kind}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${owner} OBJECT ${source})
  halfbyte_flags(${owner})
  halfbyte_code_generation(${owner} ${kind})
  target_precompile_headers(${owner} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled/${kind}.h)
  set_target_properties(${owner} PROPERTIES HALFBYTE_HEADER ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${owner}.dir/cmake_pch.hxx)
  if(kind STREQUAL torch)
    target_link_libraries(${owner} PRIVATE torch)
  elseif(kind STREQUAL json)
    target_link_libraries(${owner} PRIVATE nlohmann_json::nlohmann_json)
  endif()
endfunction()
