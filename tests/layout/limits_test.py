"""Every test that ctest knows has a time limit of its own: none waits for ever, whoever runs it.

    limits_test.py CTEST BUILD
"""
import json
import subprocess
import sys


def property_of(test, name):
    return next((each["value"] for each in test["properties"] if each["name"] == name), None)


def main():
    ctest, build = sys.argv[1:]
    shown = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], capture_output=True, check=True, timeout=60).stdout
    # A program that was not built yet stands as one test of that name, without properties.
    tests = [test for test in json.loads(shown)["tests"] if "_NOT_BUILT" not in test["name"]]
    without = [test["name"] for test in tests if not property_of(test, "TIMEOUT")]
    if not tests or without:
        print(f"{len(without)} of {len(tests)} tests have no TIMEOUT: {', '.join(without)}")
    return 0 if tests and not without else 1


if __name__ == "__main__":
    sys.exit(main())
