"""Every tidy rule, applied to every file of the project."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.tidy import pages, shape, wiring, words
from tests.tidy.project import ROOT, Finding, Project, this_project

Rule = Callable[[Project], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    shape.files_are_small,
    shape.functions_fit_a_screen,
    shape.modules_have_a_subject,
    shape.modules_say_what_they_are_for,
    shape.packages_only_list_names,
    words.no_unfinished_work_is_marked,
    words.no_local_paths,
    words.no_registry_is_named,
    words.no_ticket_references,
    wiring.every_module_is_reached,
    wiring.a_module_of_one_importer_has_a_reason,
    wiring.no_class_name_is_used_twice,
    wiring.every_limit_is_used,
    wiring.every_error_is_in_the_drawn_tree,
    wiring.pure_modules_are_under_contract,
    wiring.every_dependency_is_locked,
    pages.links_resolve,
    pages.named_files_exist,
    pages.change_log_has_the_version,
    pages.folder_sizes_are_current,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_project_follows(rule: Rule) -> None:
    findings = [str(finding) for finding in rule(this_project())]
    assert not findings, "\n" + "\n".join(findings)


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.generate_docs", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"run `make docs`:\n{done.stdout}{done.stderr}"
