"""Makes ``tests`` importable by that name for all suites; this folder itself stays off the path."""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path

_spec = ModuleSpec("tests", loader=None, is_package=True)
_spec.submodule_search_locations = [str(Path(__file__).with_name("tests"))]
sys.modules.setdefault("tests", module_from_spec(_spec))
