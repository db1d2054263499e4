"""Each rule finds its planted violation, and passes a clean project."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.tidy import pages, shape, wiring, words
from tests.tidy.project import Project
from tests.tidy.test_project_is_tidy import RULES, Rule

CLEAN = {
    "README.md": "# Sample\n\nSee [the map](docs/map.md#the-way-in) and `src/tidelock/core/`.\n",
    "CHANGELOG.md": "# Changes\n\n## [1.0.0] - unreleased\n",
    "docs/map.md": "# Map\n\n## The way in\n\n```\n[not a link](nowhere.md)\n```\n",
    "Makefile": "soak:\n\tpython -m testkit.soak\n",
    "requirements.lock": "rich==14.0 \\\n    --hash=sha256:0\n",
    "pyproject.toml": (
        '[project]\nversion = "1.0.0"\ndependencies = ["rich>=13"]\n'
        'scripts = { sample = "tidelock.ops.main:run" }\n'
        '[[tool.importlinter.contracts]]\nid = "pure"\nsource_modules = ["tidelock.core.fold"]\n'
    ),
    "src/tidelock/__init__.py": (
        '"""Sample."""\n__all__ = ["run"]\n_LAZY = {"run": "tidelock.ops.main:run"}\n'
        "if not TYPE_CHECKING:\n    def __getattr__(name: str) -> object: ...\n"
        "def __dir__() -> list[str]: ...\n"
    ),
    "src/tidelock/core/limits.py": '"""Bounds."""\nSIZE_MAX: int = 1\n',
    "src/tidelock/core/fold.py": '"""Pure fold."""\nfrom tidelock.core.errors import Conflict\n',
    "src/tidelock/core/errors.py": (
        '"""The tree.\n\n    TidelockError\n      Conflict   lost\n"""\n'
        "class TidelockError(Exception): ...\nclass Conflict(TidelockError): ...\n"
    ),
    "src/tidelock/ops/main.py": (
        '"""Command."""\nfrom tidelock.core import errors, fold, limits\nprint(limits.SIZE_MAX)\n'
    ),
    "testkit/soak.py": '"""Soak."""\n',
    "testkit/world.py": '"""For tests."""\n',
    "tests/test_world.py": "from testkit import world\n",
}


@dataclass(frozen=True)
class Plant:
    """A file that replaces or extends the clean ones, and the expected finding.

    Without text the file is missing.
    """

    rule: Rule
    path: str
    text: str | None
    says: str
    more: Mapping[str, str] = field(default_factory=dict)


def _host(*labels: str) -> str:
    return ".".join(labels)


PLANTS = (
    Plant(shape.files_are_small, "src/tidelock/core/big.py", "x = 1\n" * 801, "801 lines"),
    Plant(shape.files_are_small, "tests/test_big.py", "x = 1\n" * 801, "801 lines"),
    Plant(
        shape.functions_fit_a_screen,
        "benchmarks/long.py",
        "async def crawl() -> None:\n" + "    x = 1\n" * 70,
        "crawl has 71 lines",
    ),
    Plant(shape.modules_have_a_subject, "src/tidelock/lock/utils.py", "", "'utils'"),
    Plant(shape.modules_have_a_subject, "tests/common/stores.py", "", "'common'"),
    Plant(shape.modules_say_what_they_are_for, "src/tidelock/core/mute.py", "x = 1\n", "docstring"),
    Plant(
        shape.packages_only_list_names,
        "src/tidelock/core/__init__.py",
        '"""Base."""\n_cache = {}\n',
        "logic in __init__.py",
    ),
    Plant(
        shape.packages_only_list_names,
        "src/tidelock/__init__.py",
        '"""Sample."""\ndef run() -> None: ...\n',
        "logic in __init__.py",
    ),
    Plant(
        shape.packages_only_list_names,
        "src/tidelock/__init__.py",
        '"""Sample."""\nif not TYPE_CHECKING:\n    run()\n',
        "logic in __init__.py",
    ),
    Plant(words.no_unfinished_work_is_marked, "docs/map.md", "TO" + "DO: the rest\n", "finish it"),
    Plant(words.no_unfinished_work_is_marked, ".ci/run", "# FIX" + "ME\n", "finish it"),
    Plant(words.no_local_paths, "README.md", "cd /wo" + "rk/main\n", "one machine"),
    Plant(words.no_registry_is_named, "scripts/get.sh", _host("pypi", "org"), "registry"),
    Plant(
        words.no_registry_is_named, "docs/a.md", "https://" + _host("repo1", "maven"), "registry"
    ),
    Plant(words.no_registry_is_named, "docs/a.md", _host("registry", "npmjs", "org"), "registry"),
    Plant(words.no_registry_is_named, "docs/a.md", _host("proxy", "golang", "org"), "registry"),
    Plant(words.no_ticket_references, "docs/a.md", "see issue" + " #12\n", "own words"),
    Plant(words.no_ticket_references, "docs/a.md", "As reque" + "sted, \n", "own words"),
    Plant(wiring.every_module_is_reached, "src/tidelock/core/alone.py", '"""Alone."""', "wire it"),
    Plant(wiring.every_module_is_reached, "tests/test_world.py", "", "wire it"),
    Plant(
        wiring.a_module_of_one_importer_has_a_reason,
        "src/tidelock/core/limits.py",
        '"""Bounds."""\nfrom tidelock.core import half\nSIZE_MAX: int = half.SIZE\n',
        "only tidelock.core.limits imports it",
        more={"src/tidelock/core/half.py": '"""Half."""\nSIZE = 1\n'},
    ),
    Plant(
        wiring.no_class_name_is_used_twice,
        "src/tidelock/ops/lock.py",
        '"""Lock."""\nclass Conflict: ...\n',
        "src/tidelock/core/errors.py too",
    ),
    Plant(wiring.every_limit_is_used, "src/tidelock/ops/main.py", '"""Idle."""', "SIZE_MAX"),
    Plant(
        wiring.every_error_is_in_the_drawn_tree,
        "src/tidelock/core/fold.py",
        '"""Pure fold."""\nclass LostRace(Conflict): ...\n',
        "LostRace is not in the tree",
    ),
    Plant(
        wiring.every_error_is_in_the_drawn_tree,
        "src/tidelock/core/errors.py",
        '"""\n    TidelockError\n      Outer\n        Inner\n"""\n'
        "class TidelockError(Exception): ...\nclass Outer(TidelockError): ...\n"
        "class Inner(TidelockError): ...\n",
        "Inner is drawn below Outer",
    ),
    Plant(
        wiring.every_error_is_in_the_drawn_tree,
        "src/tidelock/core/errors.py",
        '"""\n    TidelockError\n      Gone\n"""\nclass TidelockError(Exception): ...\n',
        "Gone is drawn in the tree",
    ),
    Plant(
        wiring.pure_modules_are_under_contract,
        "src/tidelock/core/limits.py",
        '"""Bounds. Pure."""\n',
        "tidelock.core.limits",
    ),
    Plant(
        wiring.every_dependency_is_locked,
        "pyproject.toml",
        '[project]\nname = "tidelock"\n'
        '[dependency-groups]\ndev = ["tidelock[all]", "Absent_One>=1"]\n',
        "absent-one is not locked",
    ),
    Plant(wiring.every_dependency_is_locked, "requirements.lock", "other==1 \\\n", "rich is not"),
    Plant(pages.links_resolve, "README.md", "[gone](docs/gone.md)\n", "no such file"),
    Plant(pages.links_resolve, "docs/a.md", "[up](../README.md#nope)\n", "no such heading"),
    Plant(pages.named_files_exist, "README.md", "see `tests/test_gone.py`\n", "does not exist"),
    Plant(pages.named_files_exist, "README.md", "see `testkit/gone.py`\n", "does not exist"),
    Plant(pages.named_files_exist, "README.md", "see `examples/gone.py`\n", "does not exist"),
    Plant(pages.named_files_exist, "README.md", "see `.github/gone.yml`\n", "does not exist"),
    Plant(
        pages.change_log_has_the_version,
        "CHANGELOG.md",
        "# Changes\n\n## [0.9.0]\n\n## [1.0.0]\n",
        "the top entry is 0.9.0",
    ),
    Plant(
        pages.folder_sizes_are_current,
        "docs/architecture.md",
        "| `core/` | 40 | 1,000 | values without I/O |\n",
        "core: ",
    ),
    Plant(
        pages.folder_sizes_are_current,
        "docs/architecture.md",
        "| `core/` | 40 | 1,000 | values |\n| **package** | **40** | **1,100** | all |\n",
        "add up to 40 files, 1,000 lines",
    ),
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.rule.__name__}-{plant.path}")
def test_planted_violation_is_found(plant: Plant) -> None:
    files = {path: text for path, text in CLEAN.items() if path != plant.path}
    if plant.text is not None:
        files[plant.path] = plant.text
    files |= plant.more
    findings = list(plant.rule(Project(files)))
    assert [f for f in findings if plant.says in f.says and f.line >= 1], findings


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_clean_project_passes(rule: Rule) -> None:
    assert list(rule(Project(CLEAN))) == []


def test_every_rule_is_applied_and_has_a_planted_violation() -> None:
    written = {
        function
        for module in (shape, words, wiring, pages)
        for name, function in inspect.getmembers(module, inspect.isgeneratorfunction)
        if list(inspect.signature(function).parameters) == ["project"] and not name.startswith("_")
    } - {wiring.entry_points}
    assert written == set(RULES) == {plant.rule for plant in PLANTS}
