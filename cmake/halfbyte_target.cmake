# One function for every library of ours: its flags, its include folder, its exported name halfbyte::NAME.
#
#   halfbyte_library(NAME SOURCES a.cpp ... [PUBLIC lib ...] [PRIVATE lib ...] [PRECOMPILED kind])
#
# Sources include private headers from the repository's root ("quant/kernels/kernels.h") and public ones as <halfbyte/...>.

set(HALFBYTE_WARNINGS -Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of bounds inside std::string's own copies (GCC bugs 105329 and 105651).
  list(APPEND HALFBYTE_WARNINGS -Wno-array-bounds -Wno-stringop-overflow -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  list(APPEND HALFBYTE_WARNINGS -Wno-sign-conversion)  # of GCC's -Wconversion it is no part
endif()
if(HALFBYTE_WARNINGS_AS_ERRORS)
  list(APPEND HALFBYTE_WARNINGS -Werror)
endif()

function(halfbyte_flags target)
  target_compile_options(${target} PRIVATE ${HALFBYTE_WARNINGS} -ffp-contract=off)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

# What optimising more than CMAKE_CXX_FLAGS_RELEASE does pays for, by measurement; such sources go without a precompiled
# header. (quant/ is all of that kind.)
function(halfbyte_hot)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${HALFBYTE_HOT_FLAGS}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

function(halfbyte_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  set(target halfbyte_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(halfbyte::${name} ALIAS ${target})
  halfbyte_flags(${target})
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/include)
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)  # what its headers need of whoever includes them
  target_link_libraries(${target} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(ARG_PRECOMPILED)
    halfbyte_precompiled(${target} ${ARG_PRECOMPILED})  # cmake/precompiled.cmake
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY HALFBYTE_LIBRARIES ${target})
endfunction()
