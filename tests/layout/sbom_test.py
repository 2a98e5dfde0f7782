"""The list of what a build is made with is SPDX 2.3, and names everything that cmake/dependencies.cmake looks for."""
import json
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop())
NO_PACKAGES = {"Threads", "PkgConfig"}  # of the system and of the build


def simple(name):
    return name.lower().replace("_", "").replace("-", "")


class Sbom(unittest.TestCase):
    def setUp(self):
        self.document = json.loads((BUILD / "halfbyte.spdx.json").read_text(encoding="utf-8"))

    def test_it_has_what_spdx_asks_for(self):
        for field in ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo"):
            self.assertTrue(self.document[field], field)
        self.assertRegex(self.document["creationInfo"]["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        for package in self.document["packages"]:
            self.assertRegex(package["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")
            self.assertRegex(package["versionInfo"], r"^\d+(\.\d+)+", package["name"])
            for field in ("name", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText"):
                self.assertTrue(package[field], field)

    def test_relationships_are_between_what_it_lists(self):
        names = {package["SPDXID"] for package in self.document["packages"]} | {"SPDXRef-DOCUMENT"}
        ends = [end for row in self.document["relationships"] for end in (row["spdxElementId"], row["relatedSpdxElement"])]
        self.assertEqual(set(ends), names)
        self.assertEqual(len(self.document["relationships"]), len(names) - 1)

    def test_every_dependency_that_was_found_is_in_it(self):
        text = "".join((ROOT / path).read_text(encoding="utf-8") for path in ("cmake/dependencies.cmake", "tests/CMakeLists.txt"))
        wanted = set(re.findall(r"find_package\((\w+)", text)) | set(re.findall(r"pkg_check_modules\((\w+)", text))
        listed = [simple(package["name"]) for package in self.document["packages"]]
        rows = (ROOT / "cmake/sbom.cmake").read_text(encoding="utf-8")
        cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
        for name in wanted - NO_PACKAGES - {"Python3"}:
            other = {"Torch": "LibTorch", "dnnl": "oneDNN"}.get(name, name)
            self.assertIn(simple(other), simple(rows), f"{name}: has no row in cmake/sbom.cmake")
            is_built_with = not (name in ("Torch", "dnnl") and "HALFBYTE_WITH_TORCH:BOOL=OFF" in cache)
            is_built_with = is_built_with and (name != "Python" or "HALFBYTE_PYTHON:BOOL=ON" in cache)
            if is_built_with and name not in ("dnnl", "libedit"):  # which a build may lack
                self.assertTrue(any(simple(other) in entry for entry in listed), name)


if __name__ == "__main__":
    unittest.main()
