# halfbyte.spdx.json: what this build of halfbyte is made with, and in which versions, as SPDX 2.3 has it. Installed beside the licence.
file(STRINGS ${xxHash_INCLUDE_DIR}/xxhash.h numbers REGEX "#[ ]*define XXH_VERSION_(MAJOR|MINOR|RELEASE)")
string(REGEX MATCHALL "[0-9]+" numbers "${numbers}")
list(JOIN numbers . xxhash_version)
if(HALFBYTE_BUILD_TESTS)
  find_package(Catch2 QUIET)  # tests/ found it for itself
endif()

set(sbom_python)
if(HALFBYTE_PYTHON)
  set(sbom_python ${Python_VERSION})
endif()

# name | version | licence | where it comes from | how it is used. What was not found is not listed.
set(sbom_rows
  "nlohmann-json|${nlohmann_json_VERSION}|MIT|https://github.com/nlohmann/json|BUILD_DEPENDENCY_OF"
  "xxHash|${xxhash_version}|BSD-2-Clause|https://github.com/Cyan4973/xxHash|DYNAMIC_LINK"
  "PCRE2|${pcre2_VERSION}|BSD-3-Clause|https://github.com/PCRE2Project/pcre2|DYNAMIC_LINK"
  "utf8proc|${utf8proc_VERSION}|MIT|https://github.com/JuliaStrings/utf8proc|DYNAMIC_LINK"
  "OpenMP-runtime-of-${CMAKE_CXX_COMPILER_ID}|${CMAKE_CXX_COMPILER_VERSION}|NOASSERTION|NOASSERTION|DYNAMIC_LINK"
  "CLI11|${CLI11_VERSION}|BSD-3-Clause|https://github.com/CLIUtils/CLI11|BUILD_DEPENDENCY_OF"
  "spdlog|${spdlog_VERSION}|MIT|https://github.com/gabime/spdlog|DYNAMIC_LINK"
  "fmt|${fmt_VERSION}|MIT|https://github.com/fmtlib/fmt|DYNAMIC_LINK"
  "Boost|${Boost_VERSION_STRING}|BSL-1.0|https://www.boost.org|BUILD_DEPENDENCY_OF"
  "libedit|${libedit_VERSION}|BSD-3-Clause|https://thrysoee.dk/editline|DYNAMIC_LINK"
  "LibTorch|${Torch_VERSION}|BSD-3-Clause|https://github.com/pytorch/pytorch|DYNAMIC_LINK"
  "Python|${sbom_python}|PSF-2.0|https://www.python.org|BUILD_DEPENDENCY_OF"
  "OpenSSL|${OPENSSL_VERSION}|Apache-2.0|https://www.openssl.org|DYNAMIC_LINK"
  "oneDNN|${dnnl_VERSION}|Apache-2.0|https://github.com/uxlfoundation/oneDNN|DYNAMIC_LINK"
  "Catch2|${Catch2_VERSION}|BSL-1.0|https://github.com/catchorg/Catch2|TEST_DEPENDENCY_OF")

# One package's object.
function(sbom_package out name version licence place)
  set(${out} "{\"SPDXID\": \"SPDXRef-${name}\", \"name\": \"${name}\", \"versionInfo\": \"${version}\", \"downloadLocation\": \"${place}\",
     \"filesAnalyzed\": false, \"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"${licence}\", \"copyrightText\": \"NOASSERTION\"}" PARENT_SCOPE)
endfunction()

# DYNAMIC_LINK is said of halfbyte, the others of what it is made with.
function(sbom_relationship out name use)
  if(use STREQUAL "DYNAMIC_LINK")
    set(from halfbyte)
    set(to ${name})
  else()
    set(from ${name})
    set(to halfbyte)
  endif()
  set(${out} "{\"spdxElementId\": \"SPDXRef-${from}\", \"relationshipType\": \"${use}\", \"relatedSpdxElement\": \"SPDXRef-${to}\"}" PARENT_SCOPE)
endfunction()

sbom_package(packages halfbyte ${PROJECT_VERSION} Apache-2.0 NOASSERTION)
set(relationships "{\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-halfbyte\"}")
foreach(row IN LISTS sbom_rows)
  string(REPLACE "|" ";" row "${row}")
  list(GET row 1 version)
  if(version)
    list(GET row 0 name)
    list(GET row 2 licence)
    list(GET row 3 place)
    list(GET row 4 use)
    sbom_package(package ${name} ${version} ${licence} ${place})
    sbom_relationship(relationship ${name} ${use})
    string(APPEND packages ",\n    ${package}")
    string(APPEND relationships ",\n    ${relationship}")
  endif()
endforeach()

string(TIMESTAMP created UTC)  # SOURCE_DATE_EPOCH where that is set
string(UUID identity NAMESPACE 6ba7b811-9dad-11d1-80b4-00c04fd430c8 NAME "${packages}${relationships}" TYPE SHA1)
file(WRITE ${PROJECT_BINARY_DIR}/halfbyte.spdx.json "{
  \"spdxVersion\": \"SPDX-2.3\", \"dataLicense\": \"CC0-1.0\", \"SPDXID\": \"SPDXRef-DOCUMENT\", \"name\": \"halfbyte-${PROJECT_VERSION}\",
  \"documentNamespace\": \"https://spdx.org/spdxdocs/halfbyte-${PROJECT_VERSION}-${identity}\",
  \"creationInfo\": {\"created\": \"${created}\", \"creators\": [\"Tool: halfbyte-cmake-${PROJECT_VERSION}\"]},
  \"packages\": [
    ${packages}],
  \"relationships\": [
    ${relationships}]
}
")
install(FILES ${PROJECT_BINARY_DIR}/halfbyte.spdx.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
