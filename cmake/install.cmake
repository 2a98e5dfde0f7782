# Where everything goes: libraries and headers as the package halfbyte::*, programs, and the licence.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY HALFBYTE_LIBRARIES)
get_property(programs GLOBAL PROPERTY HALFBYTE_PROGRAMS)
set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/halfbyte)

install(TARGETS ${libraries} EXPORT halfbyte-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(folder IN ITEMS quant quant/operators models loader convert tools/server)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${folder}/include)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
  endif()
endforeach()

if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(programs AND NOT CMAKE_CROSSCOMPILING)
  # What shells and `man` know of the program, from the program itself, when it is installed.
  set(made ${PROJECT_BINARY_DIR}/shells)
  install(CODE "
    file(MAKE_DIRECTORY ${made})
    foreach(what IN ITEMS man completion_bash completion_zsh completion_fish)
      string(REPLACE _ \";\" words \${what})
      execute_process(COMMAND $<TARGET_FILE:halfbyte> \${words} OUTPUT_FILE ${made}/\${what} RESULT_VARIABLE status)
      if(NOT status EQUAL 0)
        message(FATAL_ERROR \"halfbyte \${words} failed: \${status}\")
      endif()
    endforeach()")
  install(FILES ${made}/man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME halfbyte.1)
  install(FILES ${made}/completion_bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME halfbyte)
  install(FILES ${made}/completion_zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _halfbyte)
  install(FILES ${made}/completion_fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME halfbyte.fish)
endif()
get_property(libexec_programs GLOBAL PROPERTY HALFBYTE_LIBEXEC_PROGRAMS)
if(libexec_programs)
  # LibTorch stays where it was found. (INSTALL_RPATH_USE_LINK_PATH leaves out what lies in the source tree, as .venv does.)
  set_target_properties(${libexec_programs} PROPERTIES INSTALL_RPATH ${TORCH_INSTALL_PREFIX}/lib)
  install(TARGETS ${libexec_programs} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/halfbyte)
endif()

configure_package_config_file(cmake/halfbyte-config.cmake.in ${PROJECT_BINARY_DIR}/halfbyte-config.cmake
                              INSTALL_DESTINATION ${package_directory} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/halfbyte-config-version.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT halfbyte-targets NAMESPACE halfbyte:: DESTINATION ${package_directory})
install(FILES ${PROJECT_BINARY_DIR}/halfbyte-config.cmake ${PROJECT_BINARY_DIR}/halfbyte-config-version.cmake
              cmake/FindxxHash.cmake
        DESTINATION ${package_directory})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
