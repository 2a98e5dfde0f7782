# Installs halfbyte into a scratch prefix, then configures, builds and runs the outside project against it.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "failed (${status}): ${line}")
  endif()
endfunction()

# build NAME OPTIONS...: the outside project, in a build folder of its own.
function(build name)
  run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/${name} -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -DCMAKE_BUILD_TYPE=Release
      -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
      -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix -DREADME=${README} ${ARGN})
  run(${CMAKE_COMMAND} --build ${SCRATCH}/${name})
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
# A host that only converts finds the package where there is no LibTorch, however halfbyte itself was built.
build(core -DWITH_TORCH=OFF -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON)
run(${SCRATCH}/core/quantize ${MODEL} ${SCRATCH}/tiny-4bit)
run(${SCRATCH}/core/fused ${SCRATCH}/tiny-4bit)
if(WITH_TORCH)
  build(all -DWITH_TORCH=ON)
  run(${SCRATCH}/all/generate ${SCRATCH}/tiny-4bit)
  run(${SCRATCH}/all/ranks ${SCRATCH}/tiny-4bit)
  run(${SCRATCH}/all/restore ${SCRATCH}/tiny-4bit)
  run(${SCRATCH}/all/train ${SCRATCH}/tiny-4bit)
  run(${SCRATCH}/all/pack ${SCRATCH}/packed)
endif()

foreach(file IN ITEMS man/man1/halfbyte.1 bash-completion/completions/halfbyte zsh/site-functions/_halfbyte
        fish/vendor_completions.d/halfbyte.fish)
  file(READ ${SCRATCH}/prefix/share/${file} text)
  if(NOT text MATCHES "quantize" OR NOT text MATCHES "dry.*run")
    message(FATAL_ERROR "${file} does not name the program's options")
  endif()
endforeach()

# The installed programs find each other.
run(${SCRATCH}/prefix/bin/halfbyte inspect ${SCRATCH}/tiny-4bit)
run(${SCRATCH}/prefix/bin/halfbyte generate ${SCRATCH}/tiny-4bit --prompt-tokens 1,300 --max-gen-len 4 --temperature 0)
if(WITH_TORCH)
  run(${SCRATCH}/prefix/bin/halfbyte generate ${SCRATCH}/tiny-4bit --prompt-tokens 1,300 --max-gen-len 4 --temperature 0 --dtype half)
endif()
